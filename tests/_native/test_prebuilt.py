"""What a wheel chooses: the MPI and its engine, and the op libraries for the TensorFlow that is installed."""

import os
import sys
import types

import pytest

from smddp_tf._native import compiled_ops, prebuilt


@pytest.fixture
def wheel(monkeypatch, tmp_path):
    """A package with what a wheel holds, in an environment without MPI and without a launcher."""
    umask = os.umask(0o022)
    package, prefix = tmp_path / "smddp_tf", tmp_path / "env"
    for minor in ("2.9", "2.16", "2.21"):
        (package / "prebuilt" / f"tensorflow-{minor}").mkdir(parents=True)
    for number in (12, 40):
        (package / f"libsmddp_core.mpi{number}.so").touch()
    (prefix / "lib").mkdir(parents=True)
    monkeypatch.setattr(prebuilt, "PACKAGE", package)
    monkeypatch.setattr(prebuilt, "FOLDER", package / "prebuilt")
    monkeypatch.setattr(prebuilt, "build_info", lambda name: "")
    monkeypatch.setattr(prebuilt, "wheel_folders", lambda name: [])
    monkeypatch.setattr(sys, "prefix", str(prefix))
    for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    opened = {"there": set(), "in the process": set()}
    monkeypatch.setattr(prebuilt, "_opens", lambda name, mode=0: name in opened["in the process" if mode else "there"])

    def choose(installed=(), **names):
        for name in installed:
            (prefix / "lib" / name).touch()
        opened.update({key.replace("_", " "): set(value) for key, value in names.items()})
        return prebuilt.mpi_library.__wrapped__().replace(f"{prefix}/", "")

    yield choose
    os.umask(umask)


def test_without_a_launcher_what_pip_installed_comes_before_the_systems(wheel):
    assert wheel() == ""
    assert wheel(there=["libmpich.so.12"]) == "libmpich.so.12"
    assert wheel(there=["libmpi.so.12", "libmpi.so.40"]) == "libmpi.so.40"
    assert wheel(installed=["libmpi.so.12"], there=["libmpi.so.40"]) == "lib/libmpi.so.12"
    assert wheel(installed=["libmpi.so.40"]) == "lib/libmpi.so.40"


def test_the_launcher_decides_between_two_kinds(wheel, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")
    assert wheel(installed=["libmpi.so.40"], there=["libmpi.so.12"]) == "libmpi.so.12"
    assert wheel(there=[]) == "lib/libmpi.so.40"
    monkeypatch.setenv("PMIX_RANK", "1")
    assert wheel(installed=["libmpi.so.12"]) == "lib/libmpi.so.40"


def test_two_mpis_never_meet_in_a_process(wheel, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    assert wheel(installed=["libmpi.so.40"], in_the_process=["libmpi.so.12"]) == "libmpi.so.12"


def test_a_build_from_sources_has_the_mpi_it_was_built_with(wheel, monkeypatch):
    monkeypatch.setattr(prebuilt, "build_info", {"MPI_LIBRARY": "/opt/lib/libmpi.so.12"}.get)
    assert wheel(installed=["libmpi.so.40"]) == "/opt/lib/libmpi.so.12"


def test_the_engine_is_that_of_the_library(wheel, monkeypatch):
    loaded = []
    monkeypatch.setattr(prebuilt.ctypes, "CDLL", loaded.append)
    for name in ("/env/lib/libmpi.so.40", "libmpich.so.12", "libmpi.so.99"):
        prebuilt.load_engine(name)
    assert [path.rpartition("/")[2] for path in loaded] == ["libsmddp_core.mpi40.so", "libsmddp_core.mpi12.so"]


def test_the_minor_version_of_tensorflow_chooses_the_ops(wheel):
    assert prebuilt.minors() == ["2.9", "2.16", "2.21"]
    assert prebuilt.op_folder("2.21.3") == prebuilt.FOLDER / "tensorflow-2.21"
    assert prebuilt.op_folder("2.2.0") is None


def test_without_a_compiler_a_new_tensorflow_is_refused_in_one_sentence(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled_ops, "_tool", lambda name: None)
    with pytest.raises(
        ImportError, match=r"ready for TensorFlow 2\.9, 2\.16, 2\.21; 2\.22\.0 is installed.*pip install"
    ):
        compiled_ops.compiled(types.SimpleNamespace(__version__="2.22.0"))


def test_ops_that_are_compiled_are_compiled_once(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled_ops, "_tool", lambda name: f"/bin/{name}")
    commands = []
    monkeypatch.setattr(compiled_ops, "_run", lambda command, version: commands.append(list(map(str, command))))
    tensorflow = types.SimpleNamespace(__version__="2.22.0", __file__="/site/tensorflow/__init__.py")
    with pytest.warns(UserWarning, match=r"compiles its ops for TensorFlow 2\.22\.0"):
        folder = compiled_ops.compiled(tensorflow)
    assert compiled_ops.compiled(tensorflow) == folder
    assert folder.is_relative_to(tmp_path / "smddp_tf")
    assert [command[0] for command in commands] == ["/bin/cmake", "/bin/cmake"]
    assert "-DSMDDP_TENSORFLOW_DIR=/site/tensorflow" in commands[0]
    assert any(word.startswith("-DSMDDP_ENGINE=") and word.endswith(".so") for word in commands[0])


def test_a_cache_that_others_could_have_written_is_refused(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled_ops, "_tool", lambda name: f"/bin/{name}")
    monkeypatch.setattr(compiled_ops, "_run", lambda command, version: None)
    monkeypatch.setattr(compiled_ops, "build_info", lambda name: "commit")
    tensorflow = types.SimpleNamespace(__version__="2.22.0", __file__="/site/tensorflow/__init__.py")
    with pytest.warns(UserWarning, match="compiles its ops"):
        package = compiled_ops.compiled(tensorflow)
    package.mkdir()
    library = package / "libsmddp_tf_ops.so"
    library.touch(mode=0o600)
    package.chmod(0o700)
    assert compiled_ops.compiled(tensorflow) == package
    for path in (library, package, *list(package.parents)[:3]):
        mode = path.stat().st_mode
        path.chmod(mode | 0o020)
        with pytest.raises(ImportError, match=rf"{path} is not used: .* Found: mode .* set XDG_CACHE_HOME"):
            compiled_ops.compiled(tensorflow)
        path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(package.parent, 12345, -1)
        with pytest.raises(ImportError, match="user 12345"):
            compiled_ops.compiled(tensorflow)
        os.chown(package.parent, 0, -1)
    library.unlink()
    library.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(ImportError, match="is not used"):
        compiled_ops.compiled(tensorflow)


def test_the_lock_of_the_cache_is_no_link(wheel, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled_ops, "_tool", lambda name: f"/bin/{name}")
    monkeypatch.setattr(compiled_ops, "build_info", lambda name: "commit")
    cache = tmp_path / "cache" / "smddp_tf" / "commit"
    cache.mkdir(parents=True, mode=0o755)
    (tmp_path / "file").write_text("important")
    (cache / "lock").symlink_to(tmp_path / "file")
    with pytest.raises(ImportError, match="lock is not used"):
        compiled_ops.compiled(types.SimpleNamespace(__version__="2.22.0", __file__="/site/tensorflow/__init__.py"))
    assert (tmp_path / "file").read_text() == "important"

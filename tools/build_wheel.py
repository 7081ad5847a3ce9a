"""Builds the wheel that is installed without a compiler: `make wheel`.

python tools/build_wheel.py              makes dist/smddp_tf-*.whl and the sdist, and prints what is in the wheel
python tools/build_wheel.py --current    prints the wheel in dist/ when it was made of this commit

The engine is compiled once, what depends on the Python, the MPI or the TensorFlow once for each (build/wheel/). Needs
a C++ compiler, a package index, and the interpreters to build for; those that are not found are left out and named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build_env

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "wheel"
TOOLS = FOLDER / "env" / "bin"
PACKAGE = FOLDER / "package"
DIST = ROOT / "dist"
# The last one's module has the stable ABI of Python, and serves all that are newer.
PYTHONS = ("3.10", "3.11", "3.12")
# By the number of its libmpi.so; Intel MPI has MPICH's.
OPEN_MPI, MPICH = "40", "12"
REQUIRED = ("setuptools>=77", "wheel", "cmake", "ninja", "nanobind", "auditwheel")
# What compiles the op libraries for a TensorFlow that came later (smddp_tf/_native/compiled_ops.py).
SOURCES = ("CMakeLists.txt", "VERSION", "cmake/*", "tf_ops/**/CMakeLists.txt", "tf_ops/**/*.h", "tf_ops/ops/**/*.cc")
MADE_OF = ("smddp_tf", "tf_ops", "cmake", "CMakeLists.txt", "setup.py", "pyproject.toml", "VERSION")
LARGEST_MIB = 40
# In the process before what needs it is loaded: the installed TensorFlow's, and the engine under its own name.
IN_THE_PROCESS = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2", "libsmddp_core.so")


def run(*command: str | Path, where: Path = ROOT, **environment: str) -> str:
    """Returns what the command printed; ends the program, with all of it, when it fails."""
    done = subprocess.run(
        [str(word) for word in command], cwd=where, env=os.environ | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{' '.join(map(str, command))} failed ({done.returncode}).")
    return done.stdout


def commit() -> str:
    """The last commit that changed what the wheel is made of, with a + where the checkout differs from it."""
    changed = run("git", "status", "--porcelain", "--", *MADE_OF)
    return run("git", "log", "-1", "--format=%H", "--", *MADE_OF).strip() + ("+" if changed else "")


def current() -> Path | None:
    """The wheel in dist/ that was made of these sources; None where one of them is not committed."""
    noted = f'COMMIT = "{commit()}"'
    for wheel in DIST.glob("smddp_tf-*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            if "+" not in noted and noted in opened.read("smddp_tf/_build_info.py").decode():
                return wheel
    return None


# --- what is built with ---


def make_tools() -> None:
    """An environment with the build tools, made when it is missing."""
    if not (TOOLS / "auditwheel").exists():
        run(sys.executable, "-m", "venv", TOOLS.parent)
        run(TOOLS / "python", "-m", "pip", "install", "-q", *REQUIRED)


def unpacked(requirement: str, *folders: str) -> Path:
    """A wheel from the package index, unpacked as far as its `folders` go; kept for the next time."""
    target = FOLDER / "unpacked" / re.sub(r"[=*]+", "-", requirement).rstrip("-.")
    if target.exists():
        return target
    downloads = FOLDER / "downloads"
    platforms = [word for glibc in (12, 17, 27, 28) for word in ("--platform", f"manylinux_2_{glibc}_x86_64")]
    run(
        TOOLS / "python", "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", downloads,
        "--python-version", PYTHONS[-1], *platforms, requirement,
    )  # fmt: skip
    name, _, version = requirement.partition("==")
    (wheel,) = downloads.glob(f"{name.replace('-', '_')}-{version.rstrip('*')}*.whl")
    with zipfile.ZipFile(wheel) as opened:
        wanted = [member for member in opened.namelist() if any(folder in member for folder in folders)]
        opened.extractall(f"{target}.part", wanted)
    os.rename(f"{target}.part", target)
    return target


def tensorflow(minor: str) -> build_env.TensorFlow:
    """Headers and libraries of the newest patch version."""
    wanted = ("tensorflow/include/", "tensorflow/libtensorflow_", ".dist-info/METADATA")
    folder = unpacked(f"tensorflow-cpu=={minor}.*", *wanted) / "tensorflow"
    return build_env.TensorFlow(str(folder), build_env.tensorflow_version(folder))


def mpi_headers(name: str) -> Path:
    """The folder of mpi.h of the wheel `name`."""
    return next(unpacked(name, "/include/mpi").rglob("mpi.h")).parent


def nvrtc() -> build_env.Cuda:
    """CUDA 12's compiler and header.

    Raises:
        SystemExit: it cannot be used here.
    """
    library = next(unpacked("nvidia-cuda-nvrtc-cu12==12.9.*", "/lib/").rglob("libnvrtc.so.12"))
    headers = next(unpacked("nvidia-cuda-runtime-cu12==12.9.*", "/include/").rglob("cuda.h")).parent
    found = build_env.with_nvrtc(library, headers)
    if isinstance(found, str):
        raise SystemExit(found)
    return found


def interpreter(version: str) -> str:
    """The path of this Python; "" where there is none with headers."""
    asked = "import sys, sysconfig as s; print(*sys.version_info[:2], s.get_path('include') + '/Python.h', sep='\\n')"
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    for program in filter(None, (shutil.which(f"python{version}"), sys.executable, *of_pyenv)):
        done = subprocess.run([program, "-c", asked], capture_output=True, text=True, check=False)
        *words, header = done.stdout.split() or [""]
        if ".".join(words) == version and Path(header).exists():
            return str(program)
    return ""


def interpreters() -> dict[str, str]:
    """The path of each Python to build for; says which are not here."""
    found = {version: interpreter(version) for version in PYTHONS}
    for version in [version for version, path in found.items() if not path]:
        print(f"Python {version} is left out: it is not on PATH or below ~/.pyenv, or has no headers", flush=True)
    return {version: path for version, path in found.items() if path}


# --- building ---


class Progress:
    """Says which part is built, of how many, and how long it has taken so far."""

    def __init__(self, pythons: int) -> None:
        self._parts, self._begun, self._start = 1 + pythons + len(build_env.TENSORFLOW_MINORS), 0, time.monotonic()
        print(f"The wheel has {self._parts} parts; on 2 cores they take about 10 minutes in all.", flush=True)

    def begin(self, name: str) -> None:
        self._begun += 1
        print(f"--- {self._begun} of {self._parts}: {name} ({time.monotonic() - self._start:.0f} s so far)", flush=True)


def build(name: str, progress: Progress, targets: list[str], **definitions: str | Path) -> Path:
    """Configures and builds in a folder of its own, which is returned."""
    folder = FOLDER / name
    definitions |= {"CMAKE_BUILD_TYPE": "Release", "CMAKE_CXX_COMPILER": build_env.find_compiler()}
    definitions |= {"CMAKE_MAKE_PROGRAM": TOOLS / "ninja"}
    definitions |= {"CMAKE_CXX_FLAGS": f"-include {ROOT}/cmake/older_libstdcxx.h"}
    progress.begin(name)
    run(
        TOOLS / "cmake",
        "-G",
        "Ninja",
        "-S",
        ROOT,
        "-B",
        folder,
        *(f"-D{key}={value}" for key, value in definitions.items()),
    )
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    run(TOOLS / "ninja", "-C", folder, "-j", jobs, *targets)
    return folder


def build_engine(progress: Progress) -> Path:
    """The engine, its parts for both kinds of MPI, and its GPU part, of CUDA 12: for all drivers TensorFlow runs on."""
    cuda = nvrtc()
    return build(
        "engine", progress, ["smddp_core", "smddp_mpi", "smddp_other_mpi", "smddp_cuda"],
        SMDDP_MPI_INCLUDE_DIR=mpi_headers("openmpi"), SMDDP_OTHER_MPI_INCLUDE_DIR=mpi_headers("mpich"),
        SMDDP_CUDA_COMPILER=";".join(cuda.compiler), SMDDP_CUDA_VERSION=cuda.version,
        SMDDP_CUDA_INCLUDE_DIR=cuda.include_dir, SMDDP_CUDA_ARCHITECTURES=";".join(cuda.architectures),
    )  # fmt: skip


def build_package(pythons: dict[str, str]) -> None:
    """Puts into PACKAGE what setup.py adds to the modules of Python."""
    progress = Progress(len(pythons))
    engine = build_engine(progress) / "package"
    nanobind = run(TOOLS / "python", "-m", "nanobind", "--cmake_dir").strip()
    library = engine / "libsmddp_core.so"
    files = {
        library.name: library,
        f"libsmddp_mpi.mpi{OPEN_MPI}.so": engine / "libsmddp_mpi.so",
        f"libsmddp_mpi.mpi{MPICH}.so": engine.parent / "other_mpi" / "libsmddp_mpi.so",
    }
    if (engine / "libsmddp_cuda.so").exists():
        files["libsmddp_cuda.so"] = engine / "libsmddp_cuda.so"
    for version, python in pythons.items():
        built = build(
            f"python-{version}",
            progress,
            ["_core"],
            SMDDP_ENGINE=library,
            Python_EXECUTABLE=python,
            nanobind_DIR=nanobind,
        )
        (module,) = (built / "package").glob("_core.*.so")
        files[module.name] = module
    for minor in build_env.TENSORFLOW_MINORS:
        found = tensorflow(minor)
        built = build(
            f"tensorflow-{minor}", progress, ["smddp_tf_ops", "smddp_tf_xla", "smddp_tf_allocator"],
            SMDDP_ENGINE=library,
            SMDDP_TENSORFLOW_DIR=found.directory, SMDDP_TENSORFLOW_VERSION=found.version,
            CMAKE_UNITY_BUILD="ON",  # TensorFlow's templates are compiled twice instead of 16 times
        )  # fmt: skip
        files |= {f"prebuilt/{built.name}/{file.name}": file for file in (built / "package").glob("*.so")}

    shutil.rmtree(PACKAGE, ignore_errors=True)
    for name, file in files.items():
        (PACKAGE / name).parent.mkdir(parents=True, exist_ok=True)
        run("strip", "--strip-unneeded", "-o", PACKAGE / name, file)
    for pattern in SOURCES:
        for file in ROOT.glob(pattern):
            to = PACKAGE / "prebuilt" / "source" / file.relative_to(ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
    info = (engine / "_build_info.py").read_text(encoding="utf-8")
    (PACKAGE / "_build_info.py").write_text(f'{info}COMMIT = "{commit()}"\n', encoding="utf-8")


def pack(pythons: dict[str, str]) -> Path:
    """Makes the wheel and the sdist, and returns the wheel."""
    for old in DIST.glob("smddp_tf-*"):
        old.unlink()
    epoch = run("git", "log", "-1", "--format=%ct", "--", *MADE_OF).strip()
    run(TOOLS / "python", "setup.py", "-q", "sdist", SOURCE_DATE_EPOCH=epoch)
    whole = ("build", f"--prebuilt={PACKAGE}", "bdist_wheel")
    run(TOOLS / "python", "setup.py", "-q", *whole, SOURCE_DATE_EPOCH=epoch)
    (wheel,) = DIST.glob("smddp_tf-*.whl")
    tags = [f"cp{version.replace('.', '')}" for version in pythons]
    abis = ["none", *(["abi3"] if PYTHONS[-1] in pythons else [])]
    run(
        TOOLS / "wheel", "tags", "--remove", "--python-tag", ".".join(tags), "--abi-tag", ".".join(abis),
        "--platform-tag", platform_of(wheel), wheel, SOURCE_DATE_EPOCH=epoch,
    )  # fmt: skip
    (wheel,) = DIST.glob("smddp_tf-*.whl")
    return wheel


def platform_of(wheel: Path) -> str:
    """The oldest platform whose system libraries have all symbols that are needed, as auditwheel says.

    Raises:
        SystemExit: a library is needed that is neither the system's nor TensorFlow's nor in the wheel.
    """
    text = run(TOOLS / "auditwheel", "show", "--json", wheel)
    said = json.loads(text[text.index("{") : text.rindex("}") + 1])
    if foreign := set(said["external_libs"]) - set(IN_THE_PROCESS):
        raise SystemExit(f"The wheel needs {', '.join(sorted(foreign))}, which not every system has.")
    return str(said["sym_tag"])


def report(wheel: Path) -> None:
    """Prints the parts of the wheel with their sizes, compressed.

    Raises:
        SystemExit: the wheel is larger than promised.
    """
    parts: dict[str, int] = {}
    with zipfile.ZipFile(wheel) as opened:
        for entry in opened.infolist():
            inside = entry.filename.split("/")
            native = entry.filename.endswith(".so") or "prebuilt" in inside
            part = "/".join(inside[1:3] if "prebuilt" in inside else inside[1:]) if native else "Python and the rest"
            parts[part] = parts.get(part, 0) + entry.compress_size
    for part, size in sorted(parts.items()):
        print(f"{size / 2**20:8.2f} MiB  {part}")
    total = wheel.stat().st_size / 2**20
    print(f"{total:8.2f} MiB  {wheel.relative_to(ROOT)}")
    if total > LARGEST_MIB:
        raise SystemExit(f"The wheel has {total:.1f} MiB, more than {LARGEST_MIB}.")
    print(
        "Install it on every host, in an environment with TensorFlow 2.16 or newer, and try it:\n"
        f"    pip install {wheel.relative_to(ROOT)}\n"
        "    smddprun -np 2 python -m smddp_tf.demo"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--current", action="store_true", help="print the wheel of this commit, if there is one")
    if parser.parse_args().current:
        print(current() or "")
        return 0
    make_tools()
    pythons = interpreters()
    build_package(pythons)
    report(pack(pythons))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except build_env.BuildEnvError as error:
        sys.exit(str(error))

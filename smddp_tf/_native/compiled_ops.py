"""Compiles the op libraries for a TensorFlow that a wheel has none for: once, into the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smddp_tf._native import prebuilt
from smddp_tf._native.tensorflow_import import build_info
from smddp_tf._warn import warn

_SECONDS = 1800.0  # for the compilation, also where another process does it


def compiled(tensorflow: Any) -> Path:
    """The folder of the op libraries for this TensorFlow module, which are compiled on the first call.

    Raises:
        ImportError: there is no compiler or no CMake, or the compilation failed. Says what to install.
    """
    version = tensorflow.__version__
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "smddp_tf", build_info("COMMIT"))
    built = cache / f"tensorflow-{version}"
    package, done = built / "package", built / "done"
    if done.exists():
        return package
    cmake, compiler = _tool("cmake"), _tool("c++") or _tool("g++") or _tool("clang++")
    if not cmake or not compiler or not (_tool("ninja") or _tool("make")):
        raise ImportError(_message(version, "and there is no C++ compiler, CMake or ninja to compile them with"))
    built.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "lock", version):
        if not done.exists():
            warn(
                f"smddp_tf compiles its ops for TensorFlow {version} into {built}, once; this takes minutes.",
                UserWarning,
            )
            definitions = {
                "CMAKE_BUILD_TYPE": "Release",
                "CMAKE_UNITY_BUILD": "ON",  # a third of the time
                "CMAKE_CXX_COMPILER": compiler,
                "SMDDP_ENGINE": min(prebuilt.PACKAGE.glob("libsmddp_core.mpi*.so")),
                "SMDDP_TENSORFLOW_DIR": Path(tensorflow.__file__).parent,
                "SMDDP_TENSORFLOW_VERSION": version,
            }
            generator = ["-G", "Ninja"] if _tool("ninja") else []
            where = ["-S", prebuilt.FOLDER / "source", "-B", built]
            _run([cmake, *generator, *where, *(f"-D{name}={value}" for name, value in definitions.items())], version)
            _run([cmake, "--build", built, "--parallel"], version)
            done.touch()
    return package


@contextlib.contextmanager
def _locked(path: Path, version: str) -> Iterator[None]:
    """One process of this host compiles; the others wait for it."""
    end = time.monotonic() + _SECONDS
    with open(path, "w") as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise ImportError(_message(version, f"and another process holds {path} for {_SECONDS:.0f} s"))
            time.sleep(0.2)
        yield


def _run(command: list[Any], version: str) -> None:
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ImportError(_message(version, f"and compiling them failed:\n{tail}\n"))


def _tool(name: str) -> str | None:
    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


def _message(version: str, why: str) -> str:
    return (
        f"smddp_tf has its ops ready for TensorFlow {', '.join(prebuilt.minors())}; {version} is installed, {why}. "
        "Install one of those TensorFlows, or what compiles the ops for this one: a C++17 compiler (apt-get install "
        "g++, dnf install gcc-c++) and `pip install cmake ninja`."
    )

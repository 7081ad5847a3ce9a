"""Compiles the op libraries for a TensorFlow that a wheel has none for: once, into the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from smddp_tf._native import prebuilt
from smddp_tf._native.own_files import described, is_own
from smddp_tf._native.tensorflow_import import build_info
from smddp_tf._warn import warn

_SECONDS = 1800.0  # for each of the two commands, and so for the processes that wait for the one that runs them


def compiled(tensorflow: Any) -> Path:
    """The folder of the op libraries for this TensorFlow module, which are compiled on the first call.

    Raises:
        ImportError: there is no compiler or no CMake, or the compilation failed. Says what to install. Or another user
            could have put something there.
    """
    version = tensorflow.__version__
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "smddp_tf")
    cache = root / build_info("COMMIT")
    built = cache / f"tensorflow-{version}"
    package, done = built / "package", built / "done"
    folders = [root, cache, built]
    _check_own([*folders, cache / "lock", done])
    if done.exists():
        _check_own([package, *package.rglob("*")])
        return package
    cmake, compiler = _tool("cmake"), _tool("c++") or _tool("g++") or _tool("clang++")
    if not cmake or not compiler or not (_tool("ninja") or _tool("make")):
        raise ImportError(_message(version, "and there is no C++ compiler, CMake or ninja to compile them with"))
    root.parent.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        folder.mkdir(mode=0o700, exist_ok=True)
    _check_own(folders)
    with open(cache / "lock", "a", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process of a host compiles; the system frees it where that one ends
        if not done.exists():
            warn(f"smddp_tf compiles its ops for TensorFlow {version} into {built}, once, in minutes.", UserWarning)
            settings = [
                *("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON", f"-DCMAKE_CXX_COMPILER={compiler}"),
                f"-DSMDDP_ENGINE={prebuilt.PACKAGE / 'libsmddp_core.so'}",
                f"-DSMDDP_TENSORFLOW_DIR={Path(tensorflow.__file__).parent}",
                *(["-G", "Ninja"] if _tool("ninja") else []),
            ]
            _run([cmake, "-S", prebuilt.FOLDER / "source", "-B", built, *settings], version)
            _run([cmake, "--build", built, "--parallel"], version)
            done.touch(mode=0o600)
    return package


def _check_own(paths: list[Path]) -> None:
    for path in paths:
        if os.path.lexists(path) and not is_own(found := os.lstat(path)):
            raise ImportError(
                f"{path} is not used: the cache of compiled ops must belong to this user, without links, and nobody "
                f"else may write it, because it is loaded as code. Found: {described(found)}. Remove it, or set "
                "XDG_CACHE_HOME to a folder of this user."
            )


def _run(command: list[Any], version: str) -> None:
    try:
        subprocess.run(
            list(map(str, command)), timeout=_SECONDS, check=True, text=True, umask=0o077,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise ImportError(_message(version, f"and compiling them failed: {error}\n" + str(error.stdout))) from None


def _tool(name: str) -> str | None:
    return shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)


def _message(version: str, why: str) -> str:
    return (
        f"smddp_tf has its ops ready for TensorFlow {', '.join(prebuilt.minors())}; {version} is installed, {why}. "
        "Install one of those TensorFlows, or what compiles the ops for this one: a C++17 compiler (apt-get install "
        "g++, dnf install gcc-c++) and `pip install cmake ninja`."
    )

"""Builds test programs in C++ from the engine's sources, with a compiler and sanitizers of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import build_env  # noqa: E402

# A finding ends the program and says where it came from.
SANITIZERS = {
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    # A peer may speak of a tensor of any size: malloc returns null for large ones, and the library says so.
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_init_order=1:allocator_may_return_null=1"
    ":max_allocation_size_mb=1024",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


def build(name: str, folder: str, settings: Mapping[str, str], targets: Sequence[str] = ("all",)) -> Path:
    """Builds the programs of `folder` (below the repository) and returns the folder they are in.

    Args:
        name: of the build folder, build/NAME; what was compiled there before is used again.
        folder: with a CMakeLists.txt that calls smddp_native_test.
        settings: CMake's variables; CMAKE_CXX_COMPILER is the build's own unless given.
        targets: what is built.

    Raises:
        SystemExit: CMake or the compiler failed. What they said has been printed.
    """
    mpi = build_env.find_mpi()
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_COMPILER": build_env.find_compiler(),
        "SMDDP_MPI_INCLUDE_DIR": mpi.include_dir,
        "SMDDP_MPI_LIBRARY": mpi.library,
        "SMDDP_NATIVE_TESTS": folder,
        **settings,
    }
    into = ROOT / "build" / name
    cmake, ninja = _tool("cmake"), _tool("ninja")
    definitions["CMAKE_MAKE_PROGRAM"] = ninja
    configure = [cmake, "-G", "Ninja", "-S", str(ROOT), "-B", str(into)]
    _run([*configure, *(f"-D{key}={value}" for key, value in definitions.items())])
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    _run([cmake, "--build", str(into), "-j", jobs, "--target", *targets])
    return into / folder


def environment() -> dict[str, str]:
    """This process's, with the sanitizers' settings."""
    return {**os.environ, **{name: os.environ.get(name, value) for name, value in SANITIZERS.items()}}


def _tool(name: str) -> str:
    beside_python = Path(sys.executable).parent / name
    found = str(beside_python) if beside_python.exists() else shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is missing: pip install {name}")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{' '.join(command[:3])} failed, see above.")

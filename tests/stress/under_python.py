"""The tests marked `native`, and tests/gpu, with AddressSanitizer and UBSan: the native modules, the GPU in host memory
and the GPU kernels' code are built with them, in a copy of the package.

Python itself keeps memory until it ends, so leaks are looked for in the stress program alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nanobind

from tests import native_module, native_programs
from tests.native import PROGRAM
from tests.native_programs import ROOT, build_env
from tests.support.marks import files_with

__all__ = ["run"]

# The tests in C++ are built and run by python -m tests.native.
_NOT_COPIED = shutil.ignore_patterns("*.so", PROGRAM.name, "_build_info.py", "__pycache__", ".*")


def run(sanitizers: str) -> bool:
    """Builds, and runs the tests; true when all passed and nothing was found."""
    site = _package_with(sanitizers)
    command = [sys.executable, "-m", "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider"]
    options = native_programs.environment()
    options["ASAN_OPTIONS"] = options["ASAN_OPTIONS"].replace("detect_leaks=1", "detect_leaks=0")
    # The second, because the first looks for what throws exceptions when the process starts.
    options["LD_PRELOAD"] = f"{_library('libasan.so')} {_library('libstdc++.so')}"
    options["FAKE_GPU_FLAGS"] = f"-fsanitize={sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1"
    options.pop("PYTHONPATH", None)
    # It expects a signal; AddressSanitizer ends the process itself.
    command += ["--deselect=tests/gpu/test_fake_gpu.py::test_misuse_ends_the_process"]
    # mpirun's ranks load what does not get on with sanitizers, and benchmarks/gpu is not in the copy.
    gpu = ["tests/gpu", *(f"--ignore=tests/gpu/test_{name}.py" for name in ("processes", "gpu_check"))]
    native = [str(file.relative_to(ROOT)) for file in files_with("native") if file.parent.name != "native"]
    # In processes of their own: one looks for its GPUs once.
    ended = [
        subprocess.run([*command, *tests], cwd=site, env=options, check=False).returncode for tests in (native, gpu)
    ]
    return not any(ended)


def _package_with(sanitizers: str) -> Path:
    mpi = build_env.find_mpi()
    settings = {
        "SMDDP_SANITIZE": sanitizers,
        "SMDDP_MPI_RUNTIME_LIBRARY": mpi.runtime_library,
        "Python_EXECUTABLE": sys.executable,
        "nanobind_DIR": nanobind.cmake_dir(),
    }
    built = native_programs.build("native-address", "", settings, ("all", native_module.NAME))
    site = built / "site"
    shutil.rmtree(site, ignore_errors=True)
    for folder in ("smddp_tf", "tests"):
        shutil.copytree(ROOT / folder, site / folder, ignore=_NOT_COPIED)
    for folder in ("tools", "tf_ops", "docs"):  # what compiles the GPU in host memory, its sources, and tables
        (site / folder).symlink_to(ROOT / folder)
    shutil.copy2(ROOT / "pyproject.toml", site)
    for made, folder in (("package", "smddp_tf"), ("tests-package", "tests")):
        for file in (built / made).iterdir():
            shutil.copy2(file, site / folder)
    return site


def _library(name: str) -> str:
    compiler = build_env.find_compiler()
    return subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()

"""Builds some_driver.c, a libcuda.so.1 that names GPUs, for tests in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.tools.build_environment import build_env

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("some_driver.c")


def functions() -> list[str]:
    """The functions that libsmddp_cuda.so looks up in the driver."""
    return re.findall(r"\bF\((cu\w+)\)", (ROOT / "tf_ops" / "cuda" / "driver.h").read_text(encoding="utf-8"))


def environment(folder: Path, cuda: int, gpus: str) -> dict[str, str]:
    """Variables for a process that finds this driver.

    Args:
        folder: where to build it.
        cuda: what it says its CUDA is, such as 12040.
        gpus: the compute capability of each GPU, such as "70,90".

    Raises:
        subprocess.CalledProcessError: the compiler failed.
    """
    own = set(re.findall(r"^int (cu\w+)\(", SOURCE.read_text(encoding="utf-8"), re.MULTILINE))
    rest = [f"int {name}(void) {{ return 999; }}\n" for name in functions() if name not in own]
    whole = folder / "libcuda.c"
    whole.write_text(SOURCE.read_text(encoding="utf-8") + "".join(rest), encoding="utf-8")
    library = folder / "libcuda.so.1"
    command = [build_env.find_compiler(), "-x", "c", "-shared", "-fPIC", "-o", library, whole]
    subprocess.run(command, check=True, capture_output=True, text=True)
    inherited = {name: value for name, value in os.environ.items() if name != "SMDDP_GPU_LIBRARY"}
    path = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    return {**inherited, "LD_LIBRARY_PATH": path, "SOME_DRIVER_CUDA": str(cuda), "SOME_DRIVER_GPUS": gpus}

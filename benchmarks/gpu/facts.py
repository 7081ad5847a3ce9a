"""What the figures depend on: device, driver, versions, libraries. Everything that is missing is said to be."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.findings import machine

__all__ = ["facts"]

PACKAGES = (
    "numpy",
    "ml_dtypes",
    "torch",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "mpi4py",
    "nanobind",
    "tensorflow",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "nvidia-cuda-runtime",
)
QUERY = (
    "name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,pcie.link.gen.current,"
    "pcie.link.width.current,compute_mode,ecc.mode.current,temperature.gpu,power.draw"
)


def facts(package: Path) -> dict[str, Any]:
    """For the results file; `package` is the folder of the smddp_tf that was built."""
    return {
        "machine": machine(),
        "python": sys.version.split()[0],
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "gpus": gpus(),
        "nvcc": _last_line(_output("nvcc", "--version")),
        "compiler": _output(os.environ.get("CXX", "c++"), "--version").splitlines()[:1],
        "compute_sanitizer": _last_line(_output("compute-sanitizer", "--version")),
        "interfaces": sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else [],
        "shared_memory_bytes": shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0,
        "kernel": platform.release(),
        "libraries": {file.name: needs(file) for file in sorted(package.glob("*.so"))},
    }


def gpus() -> list[dict[str, str]]:
    """What nvidia-smi says of each device; empty without it."""
    table = _output("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader")
    rows = [line.split(", ") for line in table.splitlines() if line.count(", ") == QUERY.count(",")]
    return [dict(zip(QUERY.split(","), row)) for row in rows]


def needs(library: Path) -> dict[str, Any]:
    """Its size, what it needs (ldd), and what of that is not found."""
    lines = _output("ldd", str(library)).splitlines()
    return {
        "bytes": library.stat().st_size,
        "needs": [line.split()[0] for line in lines if line.strip()],
        "not_found": [line.split()[0] for line in lines if "not found" in line],
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return (done.stdout or done.stderr).strip()


def _last_line(text: str) -> str:
    return re.sub(r"\s+", " ", text.splitlines()[-1]).strip() if text else ""

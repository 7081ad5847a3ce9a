"""What the figures depend on: device, driver, versions, libraries. Everything that is missing is said to be."""

from __future__ import annotations

import glob
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.findings import machine

__all__ = ["facts", "find_tool"]

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
    """For the results file; `package` is the folder of the smddp_tf that was built. What cannot be had is left out."""
    questions: dict[str, Callable[[], Any]] = {
        "machine": machine,
        "python": lambda: sys.version.split()[0],
        "packages": lambda: {name: version for name in PACKAGES if (version := _version(name))},
        "gpus": gpus,
        "nvcc": lambda: _last_line(_output(find_tool("nvcc") or "nvcc", "--version")),
        "compiler": lambda: _output(os.environ.get("CXX", "c++"), "--version").splitlines()[:1],
        "compute_sanitizer": lambda: _last_line(_output(find_tool("compute-sanitizer") or "none", "--version")),
        "interfaces": lambda: sorted(os.listdir("/sys/class/net")),
        "shared_memory_bytes": lambda: shutil.disk_usage("/dev/shm").free,
        "kernel": platform.release,
        "libraries": lambda: {file.name: needs(file) for file in sorted(package.glob("*.so"))},
    }
    found = {}
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    return found


def find_tool(name: str) -> str:
    """One of CUDA's programs: on PATH, or where toolkits put it; "" when it is in none of these places."""
    places = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"))]
    candidates = [f"{place}/bin/{name}" for place in places] + [f"{place}/{name}/{name}" for place in places]
    candidates += glob.glob(f"/opt/nvidia/*/*/{name}")
    return shutil.which(name) or next((path for path in candidates if os.access(path, os.X_OK)), "")


def gpus() -> list[dict[str, str]]:
    """What nvidia-smi says of each device; empty without it. One that does not know all fields is asked for a few."""
    for query in (QUERY, "name,driver_version,memory.total"):
        table = _output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")
        rows = [line.split(", ") for line in table.splitlines() if line.count(", ") == query.count(",")]
        if rows:
            return [dict(zip(query.split(","), row)) for row in rows]
    return []


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

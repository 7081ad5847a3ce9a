"""The mark: a plain C allreduce over shared memory, compiled on first use into temp/, called through ctypes."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np

__all__ = ["CHUNK_BYTES", "Group", "build"]

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "temp" / "reference"
CHUNK_BYTES = 256 << 10
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O3", "-march=native", "-Wall", "-Wextra")


def build() -> Path:
    """Compiles the library and the stand-alone program where they are older than their sources."""
    library = BUILD / "libreference.so"
    sources = sorted(HERE.glob("*.[ch]"))
    if not library.exists() or library.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        BUILD.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("cc") or shutil.which("gcc") or "c++"
        code = str(HERE / "shm_allreduce.c")
        subprocess.run([compiler, *FLAGS, str(HERE / "main.c"), code, "-o", str(BUILD / "reference")], check=True)
        fresh = library.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, *FLAGS, "-shared", "-fPIC", code, "-o", str(fresh)], check=True)
        fresh.rename(library)
    return library


class Group:
    """One rank's end of a group over a file in memory that all ranks map.

    Args:
        path: the file, of zeroed bytes; see `create_file`.
        rank: this rank.
        ranks: how many there are.
    """

    def __init__(self, path: str, rank: int, ranks: int) -> None:
        self._library = _load()
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._group = self._library.shm_group_open(address, rank, ranks, CHUNK_BYTES)

    @staticmethod
    def create_file(path: Path, ranks: int) -> None:
        """Makes the file for a group; once, before any rank opens it."""
        with path.open("wb") as file:
            file.truncate(_load().shm_group_bytes(ranks, CHUNK_BYTES))

    def barrier(self) -> None:
        """Returns when all ranks have come here. Spins, then yields: only for the moments between measurements."""
        self._library.shm_barrier(self._group)

    def allreduce(self, array: np.ndarray) -> None:
        """Sums a contiguous float32 array over the ranks, in place."""
        address = array.ctypes.data
        self._library.shm_allreduce(self._group, address, address, array.size, 1.0)


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build()))
    library.shm_group_bytes.restype = ctypes.c_size_t
    library.shm_group_bytes.argtypes = [ctypes.c_int, ctypes.c_size_t]
    library.shm_group_open.restype = ctypes.c_void_p
    library.shm_group_open.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_size_t]
    library.shm_barrier.argtypes = [ctypes.c_void_p]
    library.shm_allreduce.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_size_t, ctypes.c_float]
    library.shm_barrier.restype = library.shm_allreduce.restype = None
    return library

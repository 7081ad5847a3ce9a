"""Intel's oneCCL on host memory, over Intel MPI."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.backends.mpi import Mpi

__all__ = ["OneCcl"]


class OneCcl(Mpi):
    """From one array into another, through oneccl.cc, which envs.sh has compiled."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__(rank, ranks)
        self._library = ctypes.CDLL(f"{sys.prefix}/lib/libbench_oneccl.so")
        address = ctypes.create_string_buffer(256)
        if rank == 0:
            self._library.oneccl_address(address)
        self._library.oneccl_open(self._comm.bcast(address.raw), rank, ranks)

    def about(self) -> dict[str, Any]:
        from importlib.metadata import version

        return {"oneccl": version("oneccl"), **super().about()}

    def allreduce(self, source: np.ndarray, result: np.ndarray) -> Callable[[], Any]:
        arguments = source.ctypes, result.ctypes, ctypes.c_size_t(len(source))  # the first two keep the arrays alive
        return lambda: self._library.oneccl_allreduce(*arguments)

    def close(self) -> None:
        self._library.oneccl_close()
        super().close()

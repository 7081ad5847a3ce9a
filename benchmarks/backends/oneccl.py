"""Intel's oneCCL on host memory, over Intel MPI."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from benchmarks.backends import Prepared
from benchmarks.backends.mpi import Mpi
from benchmarks.cases import Case, input_values, wrong_elements

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

    def prepare(self, case: Case) -> Prepared:
        source = input_values(self._comm.rank, (case.bytes // 4,))
        result = np.empty_like(source)
        arguments = (
            ctypes.c_void_p(source.ctypes.data),
            ctypes.c_void_p(result.ctypes.data),
            ctypes.c_size_t(len(source)),
        )

        def run() -> None:
            self._library.oneccl_allreduce(*arguments)

        run()
        self._kept = source, result
        return Prepared(run, wrong_elements(result, self._comm.size))

    def close(self) -> None:
        self._library.oneccl_close()
        super().close()

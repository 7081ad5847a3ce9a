"""MPI_Allreduce through mpi4py; which MPI it is depends on the environment and the launcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.backends import Prepared
from benchmarks.cases import Case, input_values, wrong_elements

__all__ = ["Mpi"]


class Mpi:
    """From one array into another: what every MPI does best."""

    def __init__(self, rank: int, ranks: int) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = MPI.COMM_WORLD
        if (self._comm.rank, self._comm.size) != (rank, ranks):
            raise RuntimeError(f"this is rank {rank} of {ranks}, MPI says {self._comm.rank} of {self._comm.size}")

    def about(self) -> dict[str, Any]:
        return {"library": self._mpi.Get_library_version().split("\n")[0].strip("\0 ")}

    def prepare(self, case: Case) -> Prepared:
        source = input_values(self._comm.rank, (case.bytes // 4,))
        result = np.empty_like(source)
        run = self.allreduce(source, result)
        run()
        return Prepared(run, wrong_elements(result, self._comm.size))

    def allreduce(self, source: np.ndarray, result: np.ndarray) -> Callable[[], Any]:
        """What sums `source` over the ranks into `result`, once for each call."""
        return lambda: self._comm.Allreduce(source, result)

    def barrier(self) -> None:
        self._comm.Barrier()

    def close(self) -> None:
        self._mpi.Finalize()

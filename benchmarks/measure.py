"""How a collective is timed: all ranks start together, the slowest rank counts, medians over repeated runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Timing", "measure_in_turns"]


@dataclass(frozen=True)
class Timing:
    """Seconds of one collective: median, 10th and 90th percentile over the repetitions."""

    median: float
    p10: float
    p90: float

    @staticmethod
    def of(seconds: list[float]) -> Timing:
        p10, p90 = np.percentile(seconds, [10, 90])
        return Timing(statistics.median(seconds), float(p10), float(p90))


def measure_in_turns(comm: Any, runs: dict[str, Callable[[], None]], repetitions: int) -> dict[str, Timing]:
    """Times every candidate in turn, so that a busy moment of the machine hits all of them.

    Args:
        comm: mpi4py communicator of all ranks.
        runs: name -> what to time; the same names in the same order on all ranks.
        repetitions: how often each runs; the first two rounds are not counted.

    Returns:
        name -> the time of the slowest rank.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repetition in range(repetitions + 2):
        for name, run in runs.items():
            comm.Barrier()
            start = time.perf_counter()
            run()
            elapsed = comm.allreduce(time.perf_counter() - start, op=_max_op())
            if repetition >= 2:
                seconds[name].append(elapsed)
    return {name: Timing.of(values) for name, values in seconds.items()}


def _max_op() -> Any:
    from mpi4py import MPI

    return MPI.MAX

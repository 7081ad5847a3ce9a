"""PyTorch's gloo, as `torch.distributed` uses it."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.backends import Prepared
from benchmarks.cases import Case, input_values, wrong_elements

__all__ = ["Gloo", "join"]


def join(rank: int, ranks: int) -> None:
    """Makes the default process group of the job's ranks."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = f"file://{os.environ['SMDDP_BENCH_STORE']}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)


class Gloo:
    """`dist.all_reduce` in place, on memory that NumPy made."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        join(rank, ranks)

    def about(self) -> dict[str, Any]:
        return {"torch": torch.__version__}

    def prepare(self, case: Case) -> Prepared:
        array = input_values(self._rank, (case.bytes // 4,))
        tensor = torch.from_numpy(array)
        dist.all_reduce(tensor)
        wrong = wrong_elements(array, self._ranks)
        array.fill(0)
        return Prepared(lambda: dist.all_reduce(tensor), wrong)

    def close(self) -> None:
        dist.destroy_process_group()

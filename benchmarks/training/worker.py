"""One rank of one library: `python -m benchmarks.training.worker WAY`; see `benchmarks.worker`."""

from __future__ import annotations

import gc
import importlib
import os
from typing import Any, Protocol

import numpy as np

from benchmarks.reference import Group
from benchmarks.training.common import fingerprint
from benchmarks.worker import serve_rank

__all__ = ["WAYS", "Trainer", "Worker"]

CHECKED_STEPS = 3

# name -> "module:class"
WAYS = {
    "plain": "benchmarks.training.keras_fit:Plain",
    "optimizer": "benchmarks.training.keras_fit:Optimizer",
    "compiled": "benchmarks.training.keras_fit:Compiled",
    "distribution": "benchmarks.training.keras_fit:Distribution",
    "jax": "benchmarks.training.keras_fit:Jax",
    "horovod": "benchmarks.training.keras_fit:HorovodFit",
    "mirrored": "benchmarks.training.keras_fit:Mirrored",
    "torch": "benchmarks.training.torch_ddp:TorchDdp",
}


class Trainer(Protocol):
    """One rank of a library."""

    def about(self) -> dict[str, Any]:
        """Versions, for the results file."""

    def build(self, name: str) -> None:
        """Makes the model of that name, with the same first weights on all ranks."""

    def train(self, steps: int) -> float:
        """Trains so many steps, after some that are not counted. Returns seconds per step."""

    def weights(self) -> list[np.ndarray]:
        """Those that are trained."""

    def close(self) -> None:
        """Ends the library."""


class Worker:
    """Answers commands; each method is one."""

    def __init__(self, way: str, rank: int, ranks: int) -> None:
        self._barrier = Group(os.environ["SMDDP_BENCH_BARRIER"], rank, ranks).barrier
        module, _, kind = WAYS[way].partition(":")
        self._trainer: Trainer = getattr(importlib.import_module(module), kind)(rank, ranks)

    def about(self) -> dict[str, Any]:
        return self._trainer.about()

    def prepare(self, model: str) -> dict[str, Any]:
        """Builds and trains; answers the weights before and after, and about how long a step takes."""
        self._trainer.build(model)
        before = fingerprint(self._trainer.weights())
        self._trainer.train(CHECKED_STEPS)
        seconds = self._trainer.train(CHECKED_STEPS)
        weights = self._trainer.weights()
        return {
            "before": before, "after": fingerprint(weights), "seconds": seconds,
            "parameters": sum(weight.size for weight in weights),
            "finite": all(bool(np.isfinite(weight).all()) for weight in weights),
        }  # fmt: skip

    def train(self, steps: int) -> float:
        """Seconds per step. All ranks begin together."""
        self._barrier()
        return self._trainer.train(steps)

    def forget(self) -> None:
        gc.collect()

    def close(self) -> None:
        self._trainer.close()


if __name__ == "__main__":
    serve_rank(Worker)

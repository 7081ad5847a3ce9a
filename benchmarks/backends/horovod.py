"""Horovod 0.28.1, from an environment of its own; it has no door but TensorFlow's."""

from __future__ import annotations

from typing import Any

import horovod
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import tensorflow as tf

from benchmarks.backends import Prepared, tensorflow_doors
from benchmarks.cases import STEPS, Case

__all__ = ["Horovod"]


class Horovod:
    """A list goes as Horovod's own tape sends it: one op a gradient, joined by its fusion buffer."""

    def __init__(self, rank: int, ranks: int) -> None:
        hvd.init()
        if (hvd.rank(), hvd.size()) != (rank, ranks):
            raise RuntimeError(f"this is rank {rank} of {ranks}, Horovod says {hvd.rank()} of {hvd.size()}")

    def about(self) -> dict[str, Any]:
        return {"horovod": horovod.__version__, "tensorflow": tf.__version__, "mpi": bool(hvd.mpi_enabled())}

    def prepare(self, case: Case) -> Prepared:
        if case.door in STEPS:
            return tensorflow_doors.prepare_step(case, hvd.rank(), hvd.size(), _Horovod)
        reduce = {"function": _each, "list": _each, "named": _each, "grouped": _grouped}[case.door]
        return tensorflow_doors.prepare(case, hvd.rank(), hvd.size(), reduce)

    def close(self) -> None:
        hvd.shutdown()


class _Horovod:
    DistributedGradientTape = hvd.DistributedGradientTape
    DistributedOptimizer = staticmethod(hvd_keras.DistributedOptimizer)


def _each(tensors: list[Any]) -> list[Any]:
    return [hvd.allreduce(tensor, name=f"bench.{place}") for place, tensor in enumerate(tensors)]


def _grouped(tensors: list[Any]) -> list[Any]:
    return hvd.grouped_allreduce(tensors, name="bench.grouped")

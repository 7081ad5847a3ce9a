"""Our engine: through the NumPy module and through TensorFlow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import smddp_tf as hvd
from benchmarks.backends import Prepared
from benchmarks.cases import (
    EXACT,
    EXACT_IN_BFLOAT16,
    GATHERS,
    STEPS,
    Case,
    brought,
    expected_sum,
    input_values,
    wrong_elements,
)
from benchmarks.ranks import process_bytes
from tests.native_module import core

__all__ = ["Smddp"]

MIB = 1 << 20


class Smddp:
    """Every door of `Case`."""

    def __init__(self, rank: int, ranks: int) -> None:
        hvd.init()
        if (hvd.rank(), hvd.size()) != (rank, ranks):
            raise RuntimeError(f"this is rank {rank} of {ranks}, smddp_tf says {hvd.rank()} of {hvd.size()}")

    def about(self) -> dict[str, Any]:
        return {"build": core().build_info(), "mpi": core().mpi_library_version().split("\n")[0].strip("\0 ")}

    def prepare(self, case: Case) -> Prepared:
        if case.door in ("array", "bfloat16", "int8"):
            return self._array(case)
        if case.door in GATHERS:
            return self._gather(case)
        if case.door == "reducescatter":
            return self._rows(case)
        from benchmarks.backends import tensorflow_doors

        if case.door in STEPS:
            return tensorflow_doors.prepare_step(case, hvd.rank(), hvd.size(), hvd)
        if case.door == "eager":
            return self._eager(case)
        if case.door == "plus":
            return tensorflow_doors.plus_one(case.bytes // 4)
        reduce = {"function": _one, "named": _named, "grouped": _grouped, "list": _planned(case)}[case.door]
        return tensorflow_doors.prepare(case, hvd.rank(), hvd.size(), reduce)

    def _array(self, case: Case) -> Prepared:
        wire = {} if case.door == "array" else {"wire_dtype": case.door}
        values = EXACT_IN_BFLOAT16 if case.door == "bfloat16" else EXACT
        array = input_values(hvd.rank(), (case.bytes // 4,), values=values)

        def run() -> None:
            core().allreduce([array], "float32", "bench", int(hvd.Sum), **wire)

        run()
        if case.door == "int8":  # an element is rounded to a step of its block, once for each node and once more
            true = expected_sum(hvd.size(), array.shape)
            wrong = int(np.count_nonzero(np.abs(array - true) > 2 * true.max() / 126))
        else:
            wrong = wrong_elements(array, hvd.size(), values=values)
        array.fill(0)
        return Prepared(run, wrong)

    def _eager(self, case: Case) -> Prepared:
        array = input_values(hvd.rank(), (case.bytes // 4,))

        def run() -> Any:
            return hvd.allreduce(array, name="bench.eager", op=hvd.Sum)

        return Prepared(run, wrong_elements(run().numpy(), hvd.size()))

    def _rows(self, case: Case) -> Prepared:
        import tensorflow as tf

        whole = (hvd.size(), case.bytes // 4 // hvd.size())
        tensor = tf.constant(input_values(hvd.rank(), whole))

        def run() -> Any:
            return hvd.reducescatter(tensor, op=hvd.Sum)

        mine = expected_sum(hvd.size(), whole)[hvd.rank()]
        return Prepared(run, int(np.count_nonzero(run().numpy()[0] != mine)))

    def _gather(self, case: Case) -> Prepared:
        """Every rank brings its part of `case.bytes`; the result is compared byte for byte."""
        lengths = [int(case.bytes * brought(case.door, rank, hvd.size())) for rank in range(hvd.size())]
        blocks = [(np.arange(length) % 251 + 31 * rank).astype(np.uint8) for rank, length in enumerate(lengths)]
        mine, expected = blocks[hvd.rank()], np.concatenate(blocks)
        into = expected.copy() if hvd.rank() == hvd.size() - 1 else np.zeros_like(expected)

        def run() -> Any:
            if case.door == "broadcast":
                core().broadcast([into], "uint8", hvd.size() - 1, "bench")
                return into
            return core().allgather(mine, "uint8", "bench")[0]

        return Prepared(run, int(np.count_nonzero(np.asarray(run()) != expected)))

    def barrier(self) -> None:
        core().barrier("bench")

    def cost(self, sizes: list[int], idle_seconds: float) -> dict[str, Any]:
        """What the engine takes beside the user's arrays: memory after allreduces of `sizes`, and CPU while idle."""
        growth = []
        for size in sizes:
            arrays = [np.ones(4 * MIB // 4, np.float32) for _ in range(size // (4 * MIB))]
            before = process_bytes("VmRSS")
            core().allreduce(arrays, "float32", "bench.cost", int(hvd.Average))
            growth.append({"bytes": size, "resident_growth": process_bytes("VmRSS") - before, "stats": core().stats()})
        cpu, wall = time.process_time(), time.perf_counter()
        time.sleep(idle_seconds)
        idle = (time.process_time() - cpu) / (time.perf_counter() - wall)
        return {"memory": growth, "idle_cpu": idle}

    def close(self) -> None:
        hvd.shutdown()


def _one(tensors: list[Any]) -> list[Any]:
    return [hvd.allreduce(tensors[0])]


def _named(tensors: list[Any]) -> list[Any]:
    return [hvd.allreduce(tensor) for tensor in tensors]


def _grouped(tensors: list[Any]) -> list[Any]:
    return hvd.grouped_allreduce(tensors)


def _planned(case: Case):
    """As tape and optimizer do it: the list is a plan, each gradient an op."""
    from smddp_tf.gradients.reducer import GradientReducer

    reducer = GradientReducer(f"bench.{case.label}")
    return lambda tensors: reducer(tensors, tensors)

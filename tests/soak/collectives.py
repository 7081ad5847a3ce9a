"""Collectives drawn at random for the soak runs, what a rank brings to them and what must come of them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt

import smddp_tf as hvd
from tests.native_module import core

Array = npt.NDArray[np.generic]
DTYPES = {
    **{name: np.dtype(name) for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")},
    "bool": np.dtype(np.bool_),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
OPS = (hvd.Sum, hvd.Average, hvd.Min, hvd.Max)


def brought(rank: int, salt: int, length: int, dtype: str) -> Array:
    """Small whole numbers that differ by rank and position."""
    return ((np.arange(length) * 5 + rank * 7 + salt * 3) % 6).astype(DTYPES[dtype])


def as_sent(array: Array, dtype: str) -> Array:
    """The same memory with the element type that `_core` takes."""
    return array.view(np.uint16) if dtype == "bfloat16" else array


def reduced(ranks: list[int], salt: int, length: int, dtype: str, op: int) -> Array:
    """The oracle, in float64."""
    every = np.stack([brought(rank, salt, length, dtype).astype(np.float64) for rank in ranks])
    if op == hvd.Min:
        return every.min(axis=0)
    if op == hvd.Max:
        return every.max(axis=0)
    total = every.sum(axis=0)
    if dtype == "bool":
        return (total > 0).astype(np.float64)
    if op == hvd.Sum:
        return total
    average = total / len(ranks)
    return average if np.dtype(DTYPES[dtype]).kind in "fV" else np.trunc(average)


def same(came: Array, expected: Array, what: str) -> None:
    """Raises AssertionError with the first difference."""
    close = np.isclose(came.astype(np.float64), expected.astype(np.float64), rtol=0.01, atol=0)
    if not close.all():
        at = int(np.argmin(close))
        raise AssertionError(f"rank {hvd.rank()}, {what}: element {at} is {came[at]} instead of {expected[at]}")


class Collectives:
    """Draws and checks collectives. Two with the same seed draw the same, so that the ranks agree."""

    def __init__(self, seed: int, prefix: str, sets: dict[int, list[int]], largest: int) -> None:
        self._random = np.random.default_rng(seed)
        self._prefix = prefix
        self._sets = sets
        self._largest = largest
        self.done = 0

    def step(self) -> None:
        """One collective, of the ranks of one set."""
        draw = self._random
        number = int(draw.choice(list(self._sets)))
        kind = int(draw.integers(10))
        salt = int(draw.integers(1000))
        dtype = str(draw.choice(list(DTYPES)))
        length = int(self._largest ** draw.random()) - 1
        op = int(draw.choice(OPS))
        tensors = int(draw.integers(1, 4))
        root = int(draw.choice(self._sets[number]))
        self.done += 1
        if hvd.rank() not in self._sets[number]:
            return
        name = f"{self._prefix}.{self.done % 50}"
        if dtype == "bool" and op == hvd.Average:
            op = int(hvd.Sum)
        if kind < 5:
            self._allreduce(number, name, salt, dtype, length, op, tensors)
        elif kind < 7:
            arrays = [brought(hvd.rank(), salt + i, length, dtype) for i in range(tensors)]
            core().broadcast([as_sent(array, dtype) for array in arrays], dtype, root, name, number)
            for i, array in enumerate(arrays):
                same(array, brought(root, salt + i, length, dtype), f"broadcast '{name}'")
        elif kind == 7:
            self._allgather(number, name, salt, dtype, length)
        elif kind == 8:
            self._alltoall(number, name, salt, dtype)
        else:
            core().barrier(name, number)

    def _allreduce(self, number: int, name: str, salt: int, dtype: str, length: int, op: int, tensors: int) -> None:
        arrays = [brought(hvd.rank(), salt + i, length, dtype) for i in range(tensors)]
        core().allreduce([as_sent(array, dtype) for array in arrays], dtype, name, op, process_set=number)
        for i, array in enumerate(arrays):
            same(array, reduced(self._sets[number], salt + i, length, dtype, op), f"allreduce '{name}' of {dtype}")

    def _allgather(self, number: int, name: str, salt: int, dtype: str, length: int) -> None:
        ranks = self._sets[number]
        lengths = [(length + rank * 3) % 4000 for rank in ranks]
        mine = brought(hvd.rank(), salt, lengths[ranks.index(hvd.rank())], dtype)
        gathered, rows = core().allgather(as_sent(mine, dtype), dtype, name, number)
        expected = np.concatenate([brought(rank, salt, n, dtype) for rank, n in zip(ranks, lengths)])
        assert list(rows) == lengths, f"rank {hvd.rank()}, allgather '{name}': {rows} instead of {lengths}"
        same(gathered.view(DTYPES[dtype]), expected, f"allgather '{name}'")

    def _alltoall(self, number: int, name: str, salt: int, dtype: str) -> None:
        ranks = self._sets[number]
        splits = {rank: [(salt + rank * 5 + to * 3) % 40 for to in ranks] for rank in ranks}
        mine = brought(hvd.rank(), salt, sum(splits[hvd.rank()]), dtype)
        received, rows = core().alltoall(as_sent(mine, dtype), dtype, splits[hvd.rank()], name, number)
        place = ranks.index(hvd.rank())
        parts = []
        for rank in ranks:
            ends = np.cumsum([0, *splits[rank]])
            parts.append(brought(rank, salt, int(ends[-1]), dtype)[ends[place] : ends[place + 1]])
        assert list(rows) == [len(part) for part in parts], f"rank {hvd.rank()}, alltoall '{name}': {rows}"
        same(received.view(DTYPES[dtype]), np.concatenate(parts), f"alltoall '{name}'")

"""Assigns the elements of a variable to ranks: arithmetic only, the same on all ranks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from smddp_tf.collectives.emit import part_length


class FlatPart(NamedTuple):
    """The sharding of a flattened variable into consecutive shards of equal length. The last may be shorter, or empty.

    Attributes:
        full_shape: the shape of the variable.
        parts: the number of shards.
        shard_indices: for each rank, the index of its shard.
    """

    full_shape: tuple[int, ...]
    parts: int
    shard_indices: tuple[int, ...]

    @property
    def length(self) -> int:
        """The number of elements of a shard, except the last ones.

        Shards begin at multiples of 16 elements, so that vector instructions handle each element as in the full
        variable: Eigen computes the last elements of a tensor one by one, which rounds differently in `rsqrt`.
        """
        return part_length(math.prod(self.full_shape), self.parts)

    def span(self, rank: int) -> tuple[int, int]:
        """Returns the first element of the shard of `rank`, and the one after its last."""
        elements = math.prod(self.full_shape)
        first = self.shard_indices[rank] * self.length
        return min(first, elements), min(first + self.length, elements)

    def count(self, rank: int) -> int:
        """Returns the number of elements that `rank` sends where a file is written: only one rank sends each shard."""
        first, end = self.span(rank)
        return end - first if self.shard_indices.index(self.shard_indices[rank]) == rank else 0

    def flat(self, value: Any, rank: int) -> Any:
        """Returns the elements of a shard."""
        return value

    def put(self, table: np.ndarray, rank: int, elements: np.ndarray) -> None:
        """Writes the elements that `rank` has sent into the array `table`."""
        first, end = self.span(rank)
        table.reshape(-1)[first:end] = elements

    def shard(self, table: Any, rank: int) -> np.ndarray:
        """Returns the shard of `rank`, from an array or a dataset of h5py, of which only the needed rows are read."""
        first, end = self.span(rank)
        width = max(math.prod(self.full_shape[1:]), 1)
        row = first // width
        rows = np.asarray(table[row : -(-end // width)] if self.full_shape else table).reshape(-1)
        return np.array(rows[first - row * width : end - row * width])

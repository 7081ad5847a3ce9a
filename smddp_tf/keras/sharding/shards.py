"""The number of ranks that share the state of an optimizer, and the shard of each of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from smddp_tf import basics
from smddp_tf._native import loader
from smddp_tf.collectives.emit import part_length


def possible_degrees() -> list[int]:
    """The degrees that the ranks of this job allow, in order: 1, ..., all ranks."""
    ranks, local = basics.size(), basics.local_size()
    if not basics.is_homogeneous():
        return sorted({1, ranks})
    return [k for k in range(1, ranks + 1) if ranks % k == 0 and (local % k == 0 or k % local == 0)]


def degree_of(partition_state: str | int | None) -> int:
    """The number of shards that the argument `partition_state` asks for; 1: every rank has all of the state.

    Args:
        partition_state: None; "node" or "world", the ranks of one node or all ranks; or an integer. With one rank only
            all of them mean 1.

    Raises:
        ValueError: it is none of these, or the ranks of this job cannot be divided so.
    """
    asked: Any = partition_state
    is_number = hasattr(asked, "__index__") and not isinstance(asked, bool)
    if asked is not None and asked not in ("node", "world") and not (is_number and asked >= 1):
        raise ValueError(
            '`partition_state` must be None, "node", "world" or an integer of at least 1. Received: '
            f"partition_state={asked!r}."
        )
    if asked is None or basics.size() == 1:
        return 1
    degree = {"node": basics.local_size(), "world": basics.size()}.get(asked) or int(asked)
    possible = possible_degrees()
    if degree not in possible or (asked == "node" and not basics.is_homogeneous()):
        raise ValueError(
            f"`partition_state` must divide the {basics.size()} ranks, and divide the ranks of a node or be a multiple "
            f"of them ({basics.local_size()} here; the nodes must be equally large for all but 1 and {basics.size()}). "
            f"Received: partition_state={asked!r}. Possible here: {', '.join(map(str, possible))}."
        )
    return degree


def shard_indices(degree: int) -> tuple[int, ...]:
    """Returns for each rank the index of its shard, of `degree` shards."""
    if not basics.is_homogeneous():  # then there is a shard for each rank
        return tuple(range(degree))
    return tuple(loader.core().places_in_parts(0, degree))


class FlatPart(NamedTuple):
    """The sharding of a flattened variable into consecutive shards of equal length. The last may be shorter, or empty.

    Attributes:
        full_shape: the shape of the variable.
        parts: the number of shards.
        shard_indices: for each rank, the index of its shard.
        asked: of a weight, how it is divided among other ranks: an argument of `degree_of`.
    """

    full_shape: tuple[int, ...]
    parts: int
    shard_indices: tuple[int, ...]
    asked: str | int | None = None

    @classmethod
    def of_weight(cls, full_shape: tuple[int, ...], asked: str | int | None) -> FlatPart:
        """Returns the sharding of a weight over the ranks of the present session."""
        degree = degree_of(asked)
        return cls(full_shape, degree, shard_indices(degree), asked)

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

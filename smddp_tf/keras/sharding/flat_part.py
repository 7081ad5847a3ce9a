"""Which elements of a variable belong to which rank: arithmetic only, the same on all ranks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from smddp_tf.collectives.emit import part_length


class FlatPart(NamedTuple):
    """How a variable is cut: flattened, in equal consecutive parts. The last ones may be shorter, or empty.

    Attributes:
        whole: the shape of the variable.
        parts: how many.
        places: for each rank, which part it has.
    """

    whole: tuple[int, ...]
    parts: int
    places: tuple[int, ...]

    @property
    def length(self) -> int:
        """The elements of a part, but of the last ones.

        Parts begin at multiples of 16 elements, so that vector instructions handle each element as in the whole
        variable: Eigen computes the last elements of a tensor one by one, which rounds differently in `rsqrt`.
        """
        return part_length(math.prod(self.whole), self.parts)

    def span(self, rank: int) -> tuple[int, int]:
        """The elements of the part of `rank`: from, and up to."""
        elements = math.prod(self.whole)
        first = self.places[rank] * self.length
        return min(first, elements), min(first + self.length, elements)

    def count(self, rank: int) -> int:
        """How many elements `rank` sends where a file is written: of equal parts one is enough."""
        first, end = self.span(rank)
        return end - first if self.places.index(self.places[rank]) == rank else 0

    def flat(self, value: Any, rank: int) -> Any:
        """The elements of a part."""
        return value

    def put(self, whole: Any, rank: int, elements: Any) -> None:
        """Writes what `rank` has sent into an array."""
        first, end = self.span(rank)
        whole.reshape(-1)[first:end] = elements

    def cut(self, whole: Any, rank: int) -> np.ndarray:
        """The part of `rank` of an array, or of a dataset of h5py, of which only the rows that are needed are read."""
        first, end = self.span(rank)
        width = max(math.prod(self.whole[1:]), 1)
        row = first // width
        rows = np.asarray(whole[row : -(-end // width)] if self.whole else whole).reshape(-1)
        return np.array(rows[first - row * width : end - row * width])

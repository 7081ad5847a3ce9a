"""Assigns items to ranks: index arithmetic only, no communication and no TensorFlow.

Items are assigned in turn: the item at position p of an epoch's order goes to rank p mod size. So the n-th batches
of all ranks are together the n-th batch of one process with a batch `size` times as large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EVEN = ("pad", "drop", None)


def total_length(count: int, size: int, even: str | None) -> int:
    """Returns the number of items of all ranks. `even`: "pad" rounds up to a multiple of `size`, "drop" down."""
    if even == "pad":
        return -(-count // size) * size
    return count // size * size if even == "drop" else count


def order_of_epoch(count: int, seed: int | None, epoch: int) -> np.ndarray:
    """The order of all items in an epoch: as they are without a seed, else a permutation that (seed, epoch) decide."""
    if seed is None:
        return np.arange(count)
    return np.random.default_rng([seed, epoch]).permutation(count)


@dataclass(frozen=True)
class Partition:
    """The distribution of `count` items over the ranks. `seed` None: always in their own order."""

    count: int
    rank: int
    size: int
    even: str | None = "pad"
    seed: int | None = None

    def __len__(self) -> int:
        return len(range(self.rank, total_length(self.count, self.size, self.even), self.size))

    def indices(self, epoch: int = 0, again: int = 0) -> np.ndarray:
        """This rank's items in an epoch, in order: int64 array of shape (len(self),).

        To pad, the order of all items is repeated as often as necessary.

        Args:
            again: number of passes of this rank in the epoch before this one. The first one has the order of all ranks'
                permutation; others have the same items in other orders.
        """
        order = order_of_epoch(self.count, self.seed, epoch)
        items = np.resize(order, total_length(self.count, self.size, self.even))[self.rank :: self.size]
        if self.seed is None or again == 0:
            return items
        return np.random.default_rng([self.seed, epoch, again, self.rank]).permutation(items)

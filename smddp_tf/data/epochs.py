"""The number of the epoch whose order is used in data from `shard`: the same on all ranks, whatever single ranks read.

Which rank an item goes to follows from the seed and the epoch. The epoch changes only where all ranks change it
together: when `fit` begins one, or with `set_epoch`. How often a rank has gone through its part since then is counted
by each rank for itself, and changes nothing but the order of the items that the rank has.
"""

from __future__ import annotations

from typing import Any

# The attribute, of results of `shard`, that holds the object with the `epoch`.
PASSES = "_smddp_passes"


def set_epoch(data: object, epoch: int) -> None:
    """Reshards and reorders shuffled data, for custom training loops. All ranks call it with the same number.

    `fit` calls it automatically. Without it each rank keeps its items, in another order in each pass.

    Example:
    >>> data = hvd.data.shard(tf.data.Dataset.range(6), shuffle=True).batch(2)
    >>> for epoch in range(3):
    ...     hvd.data.set_epoch(data, epoch)
    ...     for batch in data:
    ...         pass

    Args:
        data: the result of `shard`, or a `tf.data.Dataset` made of it.
        epoch: an integer that decides the order, together with the seed.

    Raises:
        ValueError: nothing that `shard` has shuffled is in `data`.
    """
    parts = found_in(data, PASSES)
    if not parts:
        raise ValueError(
            "`data` must be what hvd.data.shard(..., shuffle=...) returned, or a tf.data.Dataset made of it; arrays "
            f"without `batch_size` are shuffled once. Received: {data!r} (of type {type(data).__name__})."
        )
    for part in parts:
        part.epoch = epoch


def found_in(data: object, attribute: str) -> list[Any]:
    """Returns the values of an attribute of the training data; of a `tf.data.Dataset` also those of its inputs."""
    if (value := getattr(data, attribute, None)) is not None:
        return [value]
    inputs = getattr(data, "_inputs", None)
    return [found for source in (inputs() if callable(inputs) else ()) for found in found_in(source, attribute)]


class EpochsOfFit:
    """Lets all ranks go through the epochs of one `fit` with the same number of the epoch for their training data.

    Args:
        data: the training data of `fit`.
    """

    def __init__(self, data: object) -> None:
        self._parts = found_in(data, PASSES)
        self._first: list[int] = []
        self._begun = 0

    def numbers(self) -> list[int]:
        """Returns the epoch numbers with which this rank would continue."""
        return [part.epoch for part in self._parts]

    def agreed_numbers(self) -> list[int]:
        """Returns the epoch numbers that all ranks set together; no communication is needed to continue with them."""
        return [part.agreed_epoch for part in self._parts]

    def begin_fit(self, first: list[int]) -> None:
        """Makes all ranks continue with the numbers `first`, one for each object with an `epoch`; else without effect.

        Until `end_fit` other passes, such as an `evaluate` in a callback of this rank, do not change the number: a
        PyDataset does not count them, and `begin_reading` resets those that a `tf.data.Dataset` has counted.
        """
        if len(first) == len(self._parts):
            self._first = first
            for part in self._parts:
                part.is_counted_by_fit = True

    def begin_epoch(self) -> None:
        """Counts an epoch of this `fit`, and sets that of the data. Called before they are read."""
        for part, first in zip(self._parts, self._first):
            part.epoch = first + self._begun
        self._begun += 1

    def begin_reading(self) -> None:
        """Makes the next pass the first of the epoch. Called after all that may read the data before an epoch."""
        for part in self._parts if self._first else []:
            part.epoch = part.agreed_epoch

    def end_fit(self) -> None:
        """Ends the counting by `fit`. The next pass over the data is that after its last epoch."""
        for part in self._parts if self._first else []:
            part.is_counted_by_fit = False
        self.begin_epoch()
        self._first = []

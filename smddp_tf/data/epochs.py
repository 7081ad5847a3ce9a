"""Which epoch's order holds in data that `shard` has shared out: agreed on by all ranks, whatever single ranks look at.

Which rank an item goes to follows from the seed and the epoch. The epoch changes only where all ranks change it
together: when `fit` begins one, or with `set_epoch`. How often a rank has gone through its part since then is counted
by each rank for itself, and changes nothing but the order of the items that the rank has.
"""

from __future__ import annotations

from typing import Any

# The attribute of what `shard` returns that holds its `epoch`.
PASSES = "_smddp_passes"


def set_epoch(data: Any, epoch: int) -> None:
    """Reshards and reorders shuffled data, for custom training loops. All ranks call it with the same number.

    `fit` calls it automatically. Without it each rank keeps its items, in another order in each pass.

    Example:
    >>> data = hvd.data.shard(tf.data.Dataset.range(6), shuffle=True).batch(2)
    >>> for epoch in range(3):
    ...     hvd.data.set_epoch(data, epoch)
    ...     for batch in data:
    ...         pass

    Args:
        data: what `shard` returned, or a `tf.data.Dataset` made of it.
        epoch: an integer that decides the order, together with the seed.

    Raises:
        ValueError: nothing that `shard` has shuffled is in `data`.
    """
    parts = parts_in(data)
    if not parts:
        raise ValueError(
            "`data` must be what hvd.data.shard(..., shuffle=...) returned, or a tf.data.Dataset made of it; arrays "
            f"without `batch_size` are shuffled once. Received: {data!r} (of type {type(data).__name__})."
        )
    for part in parts:
        part.epoch = epoch


def parts_in(data: Any) -> list[Any]:
    """What has an `epoch` in the training data."""
    return found_in(data, PASSES)


def found_in(data: Any, attribute: str) -> list[Any]:
    """The values of an attribute of the training data; of a `tf.data.Dataset` also of what it was made from."""
    found, rest = [], [data]
    while rest:
        each = rest.pop()
        value = getattr(each, attribute, None)
        if value is not None:
            found.append(value)
        elif callable(inputs := getattr(each, "_inputs", None)):
            rest.extend(inputs())
    return found


class EpochsOfFit:
    """Lets all ranks go through the epochs of one `fit` with the same number of the epoch for their training data.

    Args:
        data: what `fit` trains on.
    """

    def __init__(self, data: Any) -> None:
        self._parts = parts_in(data)
        self._first: list[int] = []

    def numbers(self) -> list[int]:
        """What this rank would go on with."""
        return [part.epoch for part in self._parts]

    def agreed_numbers(self) -> list[int]:
        """What all ranks can go on with, without asking each other: where they last changed the numbers together."""
        return [part.agreed_epoch for part in self._parts]

    def begin_fit(self, first: list[int]) -> None:
        """All ranks go on with the numbers `first`. Not where a pass does not begin with an epoch: then without it.

        Until `end_fit` nothing else counts, such as an `evaluate` of a callback of this rank: a PyDataset does not, and
        a `tf.data.Dataset` counts passes that `begin_reading` forgets.
        """
        if len(first) == len(self._parts):
            self._first = first
            for part in self._parts:
                part.is_counted_by_fit = True

    def begin_epoch(self, number: int) -> None:
        """Before the data are read.

        Args:
            number: of epochs of this `fit` before.
        """
        for part, first in zip(self._parts, self._first):
            part.epoch = first + number

    def begin_reading(self) -> None:
        """After all that may look at the data as an epoch begins: the next pass is the first of the epoch."""
        for part in self._parts if self._first else []:
            part.epoch = part.agreed_epoch

    def end_fit(self, epochs: int) -> None:
        """After `epochs` epochs, or more or less of them."""
        for part in self._parts if self._first else []:
            part.is_counted_by_fit = False
        self.begin_epoch(epochs)
        self._first = []

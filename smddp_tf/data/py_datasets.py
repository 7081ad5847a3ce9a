"""`keras.utils.PyDataset`s that hold one rank's part and go on to the next epoch's order by themselves."""

from __future__ import annotations

import threading
from typing import Any

import keras

from smddp_tf.data import arrays
from smddp_tf.data.partition import Partition


class _OnePart(keras.utils.PyDataset):
    """The base of the datasets below: this rank's shard, and the epoch.

    Attributes:
        epoch: the number of the epoch whose order holds, counted from 0. Set it (on all ranks) to resume in the middle;
            `fit` sets it. Between two such moments it also counts this rank's passes over its part.
        agreed_epoch: the number that was set, the same on all ranks.
        is_counted_by_fit: whether a `fit` over all ranks counts the epochs.
    """

    def __init__(self, partition: Partition, **settings: Any) -> None:
        super().__init__(**settings)
        self._partition = partition
        self._shuffles = partition.seed is not None
        self._counting_threads = {threading.get_ident(), threading.main_thread().ident}
        self.is_counted_by_fit = False
        self.epoch = 0

    @property
    def epoch(self) -> int:
        return self.agreed_epoch + self._again

    @epoch.setter
    def epoch(self, value: int) -> None:
        self.agreed_epoch, self._again = value, 0
        self._indices = self._partition.indices(value)

    def on_epoch_end(self) -> None:
        # Where Keras loads with several workers, a thread of its own may call this once more, or not, by chance of
        # timing. Such calls do not count.
        if not self._shuffles or self.is_counted_by_fit or threading.get_ident() not in self._counting_threads:
            return
        if self._partition.size == 1:  # no other rank could disagree
            self.epoch += 1
        else:  # perhaps an `evaluate` on this rank only
            self._again += 1
            self._indices = self._partition.indices(self.agreed_epoch, self._again)

    @property
    def _smddp_passes(self) -> _OnePart | None:
        return self if self._shuffles else None

    def __getstate__(self) -> dict[str, Any]:  # worker processes count no epochs
        return {**self.__dict__, "_counting_threads": set()}


class ArrayBatches(_OnePart):
    """Batches of this rank's rows of arrays."""

    def __init__(self, data: object, batch_size: int, partition: Partition) -> None:
        super().__init__(partition)
        self._data = data
        self._batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self._partition) // self._batch_size)

    def __getitem__(self, index: int) -> Any:
        first = index * self._batch_size
        return arrays.rows(self._data, self._indices[first : first + self._batch_size])


class _OfSource(keras.utils.PyDataset):
    """Batches of a PyDataset of the user's, with its workers and queue."""

    def __init__(self, source: keras.utils.PyDataset, *part: Partition) -> None:
        names = ("workers", "use_multiprocessing", "max_queue_size")
        super().__init__(*part, **{name: getattr(source, name) for name in names})
        self._source = source

    def on_epoch_begin(self) -> None:
        if hasattr(self._source, "on_epoch_begin"):  # not in Keras 3.3
            self._source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._source.on_epoch_end()
        super().on_epoch_end()


class SharedBatches(_OfSource, _OnePart):
    """This rank's batches of a PyDataset of the user's."""

    def __len__(self) -> int:
        return len(self._partition)

    def __getitem__(self, index: int) -> Any:
        return self._source[int(self._indices[index])]


class EndlessBatches(_OfSource):
    """Every size-th batch of a PyDataset without end."""

    num_batches = None

    def __init__(self, source: keras.utils.PyDataset, rank: int, size: int) -> None:
        super().__init__(source)
        self._rank, self._size = rank, size

    def __getitem__(self, index: int) -> Any:
        return self._source[index * self._size + self._rank]

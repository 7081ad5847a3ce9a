"""shard: returns one rank's shard of the data, for any container."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from smddp_tf.data import arrays
from smddp_tf.data.agreement import RankAndSize, agree, rank_and_size
from smddp_tf.data.first_epoch import UNCUT
from smddp_tf.data.partition import EVEN, Partition

if TYPE_CHECKING:
    from keras.utils import PyDataset

Data = TypeVar("Data")


@overload
def shard(
    dataset: Data, *, even: str | None = ..., shuffle: bool | int = ..., seed: int | None = ..., batch_size: None = ...,
    rank: int | None = ..., size: int | None = ..., by: str = ...,
) -> Data: ...  # fmt: skip


@overload
def shard(
    dataset: object, *, even: str | None = ..., shuffle: bool | int = ..., seed: int | None = ..., batch_size: int,
    rank: int | None = ..., size: int | None = ..., by: str = ...,
) -> PyDataset: ...  # fmt: skip


def shard(
    dataset: object,
    *,
    even: str | None = "pad",
    shuffle: bool | int = False,
    seed: int | None = None,
    batch_size: int | None = None,
    rank: int | None = None,
    size: int | None = None,
    by: str = "element",
) -> Any:
    """Returns this rank's shard of data that every rank has in full.

    Item p goes to rank p mod size, so the n-th batches of all ranks are together the n-th batch of one process with a
    batch `size` times as large. By default every rank gets the same number of items, so that all make the same number
    of steps.

    With `shuffle` all ranks draw from one permutation: no item is seen twice or left out, as would happen if each
    rank shuffled before the data are sharded. In `fit` every epoch has a new permutation. In custom loops, and in
    the `fit` of legacy Keras (`TF_USE_LEGACY_KERAS=1`), call `hvd.data.set_epoch` in each epoch; without it each rank
    keeps its items, in another order in each pass, and never sees those of the other ranks. In both cases every epoch
    has each item once, also if a rank reads its shard in between.

    By element, every rank reads all data to find its own. `by="file"` lets each rank read only its share of the files,
    for a `tf.data.Dataset` that reads files: `TFRecordDataset`, `TextLineDataset`, `FixedLengthRecordDataset`, also
    inside of `interleave` or `flat_map`. Then item p no longer goes to rank p mod size, and shards differ in length.

    All ranks must call it, with the same data and arguments: they compare them, and share rank 0's seed.

    Example:
    >>> dataset = hvd.data.shard(tf.data.Dataset.from_tensor_slices((x, y)), shuffle=10_000).batch(32)
    >>> model.fit(hvd.data.shard((x, y), batch_size=32, shuffle=True))
    >>> x, y = hvd.data.shard((x, y))
    >>> model.fit(hvd.data.shard(my_py_dataset, shuffle=True))
    >>> dataset = hvd.data.shard(tf.data.TFRecordDataset(["0.tfrecord", "1.tfrecord"]), by="file")

    Args:
        dataset: the data, one of:

            - a `tf.data.Dataset`: its elements are distributed. Shard samples and batch them afterwards; of a batched
              dataset each rank gets complete batches, perhaps with the smaller last one. Where the number of
              elements is unknown, `even` applies to the last group of `size` elements. A dataset without end needs no
              `even`; give `steps_per_epoch` to `fit`.
            - arrays, alone or in tuples, lists and dicts, all with the same first dimension: rows are distributed.
            - a `keras.utils.PyDataset`: batches are distributed. The result has the same workers and queue.
        even: what to do when the items cannot be shared evenly. `"pad"`: some ranks get items from the start again.
            `"drop"`: the last items are left out (with `shuffle`, the last of the epoch's permutation). `None`: some
            ranks get one item more than others. Defaults to `"pad"`.
        shuffle: bool, or for a `tf.data.Dataset` the number of elements to draw from (the buffer of
            `Dataset.shuffle`), where `True` means all. Defaults to `False`.
        seed: integer that decides the order. Defaults to a random one of rank 0.
        batch_size: for arrays only: makes the result a `keras.utils.PyDataset` of batches, whose order is drawn again
            in every epoch (read or set the number by its attribute `epoch`). Without it, arrays come back, shuffled
            once.
        rank: integer, returns this rank's shard of `size`, without communication. Defaults to this process's rank.
        size: integer, the number of shards. Defaults to the number of ranks.
        by: the unit to distribute: of a `tf.data.Dataset`: its elements (`"element"`), its files (`"file"`,
            through tf.data's AutoShard; `even` has no effect), or files where that is possible on all ranks, else
            elements, with a warning (`"auto"`). Defaults to `"element"`.

    Returns:
        A `tf.data.Dataset` (without autotuning and with `.prefetch(2)`, unless `dataset` sets
        `options.autotune.enabled`), arrays in the structure given, or a `keras.utils.PyDataset`.

    Raises:
        TypeError: `dataset` is none of these.
        ValueError: an argument is not possible, arrays differ in their first dimension, files cannot be shared out
            (there are fewer than ranks, for example), or ranks differ in their data or arguments (raised on every
            rank).
    """
    _check(even, shuffle, batch_size, by)
    how = _Request(rank_and_size(rank, size), even, shuffle, seed, batch_size, by)
    if _is_instance(dataset, "tensorflow", "data.Dataset"):
        return _shard_tf_dataset(dataset, how)
    if by == "file":
        raise ValueError(f'by="file" is for a tf.data.Dataset that reads files. Received: {type(dataset).__name__}.')
    if _is_instance(dataset, "keras", "utils.PyDataset"):
        return _shard_py_dataset(dataset, how)
    if arrays.is_array_structure(dataset):
        return _shard_arrays(dataset, how)
    raise TypeError(
        "`dataset` must be a tf.data.Dataset, a keras.utils.PyDataset, or an array (or a tuple, list or dict of "
        f"arrays). Received: an object of type {type(dataset).__module__}.{type(dataset).__name__}. A Python generator "
        "can be wrapped with tf.data.Dataset.from_generator; lists of numbers are made arrays by np.asarray."
    )


class _Request(NamedTuple):
    """The arguments of `shard` apart from the data."""

    who: RankAndSize
    even: str | None
    shuffle: bool | int
    seed: int | None
    batch_size: int | None
    by: str

    def partition(self, kind: str, count: int) -> Partition:
        """Agrees with the other ranks and returns how `count` items are shared out."""
        return Partition(count, self.who.rank, self.who.size, self.even, self.agreed_seed(kind, count))

    def agreed_seed(self, kind: str, count: int | None, **facts: Any) -> int | None:
        arguments = {"even": self.even, "shuffle": self.shuffle, "batch_size": self.batch_size, "by": self.by, **facts}
        return agree(self.who, {"dataset": kind, "items": count, **arguments}, self.shuffle is not False, self.seed)

    def refuse_batch_size(self, advice: str) -> None:
        if self.batch_size is not None:
            raise ValueError(f"`batch_size` is for arrays. Received: batch_size={self.batch_size}. {advice}")


def _shard_tf_dataset(dataset: Any, how: _Request) -> Any:
    from smddp_tf.data import by_files, tf_datasets

    how.refuse_batch_size("Batch the result: shard(dataset).batch(...).")
    length = tf_datasets.known_length(dataset)
    if how.shuffle is True and (length is None or length < 0):
        raise ValueError(
            "shuffle=True draws from all elements, whose number this dataset does not report. "
            f"Received: a dataset {'without end' if length else 'of unknown length'}. "
            "Pass the number of elements to draw from, for example shuffle=10_000."
        )
    buffer_size = None if how.shuffle is True else int(how.shuffle)
    part, facts = (None, {}) if how.by == "element" else by_files.cut(dataset, how.who, how.even)
    seed = how.agreed_seed("tf.data.Dataset", length, **facts)
    if part is not None:
        return tf_datasets.shuffled_alone(part, how.who.rank, seed, buffer_size or length or 1)
    by_files.refuse_or_warn(dataset, how.by, how.who, facts)
    part = tf_datasets.part_of(dataset, how.who.rank, how.who.size, how.even, seed, buffer_size)
    setattr(part, UNCUT, dataset)
    return part


def _shard_py_dataset(dataset: PyDataset, how: _Request) -> Any:
    from smddp_tf.data import py_datasets

    how.refuse_batch_size("A PyDataset has batches already.")
    _refuse_buffer(how.shuffle)
    if dataset.num_batches is None:
        if how.shuffle:
            raise ValueError("A PyDataset without end (num_batches is None) has no order to shuffle: shuffle=False.")
        how.agreed_seed("endless PyDataset", None)
        return py_datasets.EndlessBatches(dataset, how.who.rank, how.who.size)
    return py_datasets.SharedBatches(dataset, how.partition("PyDataset", dataset.num_batches))


def _shard_arrays(data: object, how: _Request) -> Any:
    _refuse_buffer(how.shuffle)
    partition = how.partition("arrays", arrays.first_dimension(data))
    if how.batch_size is None:
        return arrays.rows(data, partition.indices())
    from smddp_tf.data.py_datasets import ArrayBatches

    return ArrayBatches(data, how.batch_size, partition)


def _check(even: str | None, shuffle: bool | int, batch_size: int | None, by: str) -> None:
    if by not in ("element", "file", "auto"):
        raise ValueError(f'`by` must be "element", "file" or "auto". Received: by={by!r}.')
    if even not in EVEN:
        raise ValueError(f'`even` must be "pad", "drop" or None. Received: even={even!r}.')
    if not isinstance(shuffle, (bool, int)) or (not isinstance(shuffle, bool) and shuffle < 1):
        raise ValueError(f"`shuffle` must be a bool or a positive number of elements. Received: shuffle={shuffle!r}.")
    if batch_size is not None and (isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1):
        raise ValueError(f"`batch_size` must be a positive integer. Received: batch_size={batch_size!r}.")


def _refuse_buffer(shuffle: bool | int) -> None:
    if not isinstance(shuffle, bool):
        raise ValueError(
            f"A number of elements to shuffle is for a tf.data.Dataset. Received: shuffle={shuffle}. Use shuffle=True."
        )


def _is_instance(thing: object, package: str, path: str) -> bool:
    """`isinstance(thing, package.path)`, without importing a package that has made no `thing`."""
    found: Any = sys.modules.get(package)
    for name in path.split("."):
        found = getattr(found, name, None)
    return isinstance(found, type) and isinstance(thing, found)

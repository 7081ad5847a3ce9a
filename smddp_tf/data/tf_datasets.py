"""One rank's part of a `tf.data.Dataset`; its elements may be samples or batches, of any structure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf

from smddp_tf._native import loader
from smddp_tf.data import epochs, partition

# The result of `tf.compat.v1.random.get_seed` where the user has set no global seed.
_NO_GLOBAL_SEED = 87654321


def known_length(dataset: tf.data.Dataset) -> int | None:
    """The number of elements; -1 (`tf.data.INFINITE_CARDINALITY`) without end, None for one that does not know."""
    length = int(dataset.cardinality())
    return None if length == tf.data.UNKNOWN_CARDINALITY else length


def part_of(
    dataset: tf.data.Dataset, rank: int, size: int, even: str | None, seed: int | None, buffer_size: int | None
) -> tf.data.Dataset:
    """Every size-th element, the same number on every rank if `even` says how.

    Args:
        seed: shuffles with it; None does not.
        buffer_size: the elements to draw from; None means all, whose number must be known then.
    """
    length = known_length(dataset)
    total = length if length is None or length < 0 else partition.total_length(length, size, even)
    if length and total is not None and total > length:
        dataset = dataset.repeat().take(total)

    def dealt(order: tf.data.Dataset) -> tf.data.Dataset:
        if total is not None and length is not None and total < length:
            order = order.take(total)
        if length is None and even is not None and size > 1:
            return _part_by_groups(order, rank, size, even)
        return order.shard(size, rank)

    if seed is None:
        return without_autotune(dealt(dataset))
    if buffer_size is None:
        buffer_size = int(dataset.cardinality())
    order = _Order(rank, size, seed, max(buffer_size, 1))
    return without_autotune(_shuffled_part(dataset, dealt, order))


def shuffled_alone(part: tf.data.Dataset, rank: int, seed: int | None, buffer_size: int) -> tf.data.Dataset:
    """A part that no other rank reads anything of, shuffled in each pass as `part_of` does."""
    if seed is None:
        return without_autotune(part)
    order = _Order(0, 1, seed + 104_729 * rank, max(buffer_size, 1))
    return without_autotune(_shuffled_part(part, lambda all_of_it: all_of_it, order))


class _Order:
    """The seeds of a rank's passes over its part.

    The state is a variable, because a pass may begin inside of a pipeline (`repeat`), where no Python runs.

    Attributes:
        epoch: see `smddp_tf.data.set_epoch`; it also counts this rank's passes since it was set.
        agreed_epoch: the number that was set, the same on all ranks.
        is_counted_by_fit: nothing depends on it here; see `EpochsOfFit.begin_reading`.
    """

    def __init__(self, rank: int, size: int, seed: int, buffer_size: int) -> None:
        self._rank, self._size, self._seed, self._buffer_size = rank, size, seed % 2**31, buffer_size
        self.is_counted_by_fit = False
        with tf.init_scope(), tf.device("/CPU:0"):
            self._state = tf.Variable([0, 0], dtype=tf.int64, trainable=False)  # the epoch, and the passes in it

    @property
    def epoch(self) -> int:
        return int(tf.reduce_sum(self._state))

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._state.assign([value, 0])

    @property
    def agreed_epoch(self) -> int:
        return self.epoch if self._size == 1 else int(self._state[0])

    def begin_pass(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts a pass; returns its epoch, and how many there were in it before."""
        epoch, again = tf.unstack(tf.identity(self._state))
        self._state.assign_add([0, 1])
        return (epoch + again, tf.zeros_like(again)) if self._size == 1 else (epoch, again)

    def of_all(self, dataset: tf.data.Dataset, epoch: tf.Tensor) -> tf.data.Dataset:
        """All elements in the order of an epoch, the same on all ranks."""
        return dataset.shuffle(self._buffer_size, seed=self._seed + 1_000_003 * epoch, reshuffle_each_iteration=False)

    def of_mine(self, part: tf.data.Dataset, epoch: tf.Tensor, again: tf.Tensor) -> tf.data.Dataset:
        """The elements of this rank: in the first pass of an epoch as they are, in others in orders of its own."""
        buffer_size = tf.where(again > 0, tf.constant(-(-self._buffer_size // self._size), tf.int64), 1)
        seed = self._seed + 1_000_003 * epoch + 7_919 * again + 104_729 * (self._rank + 1)
        return part.shuffle(buffer_size, seed=seed, reshuffle_each_iteration=False)


def _shuffled_part(
    dataset: tf.data.Dataset, dealt: Callable[[tf.data.Dataset], tf.data.Dataset], order: _Order
) -> tf.data.Dataset:
    def one_pass(epoch: tf.Tensor, again: tf.Tensor) -> tf.data.Dataset:
        return order.of_mine(dealt(order.of_all(dataset, epoch)), epoch, again)

    options = tf.data.Options().merge(dataset.options())
    if options.experimental_external_state_policy is None:  # an iterator in a checkpoint: what it needs is in it
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.WARN
    with _no_global_seed():
        passes = tf.data.Dataset.range(1).map(lambda _: order.begin_pass())
        part = passes.flat_map(one_pass).with_options(options)
    cardinality = dealt(dataset).cardinality()
    if cardinality != tf.data.UNKNOWN_CARDINALITY:
        part = part.apply(tf.data.experimental.assert_cardinality(cardinality))
    setattr(part, epochs.PASSES, order)
    return part


def _part_by_groups(dataset: tf.data.Dataset, rank: int, size: int, even: str) -> tf.data.Dataset:
    """Without the length: elements in groups of `size`, one for each rank; the last group is dropped or filled up.

    A window keeps each element as it is, so that they may differ in shape.
    """

    def mine(*group: object) -> tf.data.Dataset:
        elements = tf.data.Dataset.zip(group[0] if len(group) == 1 else group)
        return (elements.repeat() if even == "pad" else elements).skip(rank).take(1)

    return dataset.window(size, drop_remainder=even == "drop").flat_map(mine)


def global_seed() -> int | None:
    """Returns TensorFlow's global seed, as `tf.random.set_seed` and Keras set it; None where it is not set."""
    seed = tf.compat.v1.random.get_seed(0)[0]
    return None if seed == _NO_GLOBAL_SEED else seed


@contextlib.contextmanager
def _no_global_seed() -> Iterator[None]:
    """TensorFlow mixes the global seed into a seed that is given, and ranks may have set different ones."""
    seed = global_seed()
    if seed is None:
        yield
        return
    tf.random.set_seed(_NO_GLOBAL_SEED)
    try:
        yield
    finally:
        tf.random.set_seed(seed)


_PREFETCHED = "_smddp_without_autotune"
_AHEAD = 2  # elements: what TensorFlow's implicit prefetch begins with


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with `options.autotune.enabled = False` and `.prefetch(2)`, unless it sets that itself.

    To end an iterator TensorFlow waits for the thread that tunes it, which sleeps the longer the older it is. Every
    epoch ends one, and all ranks wait for the unluckiest. `num_parallel_calls=tf.data.AUTOTUNE` still works: it
    then is a fixed number. `SMDDP_DATA_AUTOTUNE=1` returns the dataset as it is.

    TensorFlow prefetches at the end of a tuned pipeline, unasked, and of no other. A dataset that was made of what this
    function returned (`shard(...).batch(...)`) has its option already, and only gets another prefetch.
    """
    if loader.core().switch("SMDDP_DATA_AUTOTUNE"):
        return dataset
    if dataset.options().autotune.enabled is None:
        options = tf.data.Options()
        options.autotune.enabled = False
        dataset = dataset.with_options(options)
    elif hasattr(dataset, _PREFETCHED) or not _has_prefetch(dataset):
        return dataset
    dataset = dataset.prefetch(_AHEAD)
    setattr(dataset, _PREFETCHED, True)
    return dataset


def _has_prefetch(dataset: object) -> bool:
    """Whether one of the datasets it was made of came from `without_autotune`."""
    return hasattr(dataset, _PREFETCHED) or any(map(_has_prefetch, getattr(dataset, "_inputs", tuple)()))

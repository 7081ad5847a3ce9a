"""One rank's part of a `tf.data.Dataset`; its elements may be samples or batches, of any structure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from smddp_tf.data.partition import total_length
from smddp_tf.data.tuning import without_autotune

__all__ = ["known_length", "part_of"]

# What `tf.compat.v1.random.get_seed` answers where the user has set no global seed.
_NO_GLOBAL_SEED = 87654321


def known_length(dataset: tf.data.Dataset) -> int | None:
    """The number of elements; -1 for a dataset without end, None for one that does not know."""
    length = int(dataset.cardinality())
    if length == tf.data.INFINITE_CARDINALITY:
        return -1
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
    total = length if length is None or length < 0 else total_length(length, size, even)
    # Padding comes before the shuffle. After it, the shuffle would begin a second pass, and draw its seed, or not, by
    # how far ahead a rank happens to read: the next epoch's orders would differ.
    if length and total is not None and total > length:
        dataset = dataset.repeat().take(total)
    if seed is not None:
        dataset = _shuffled(dataset, int(dataset.cardinality()) if buffer_size is None else buffer_size, seed)
    if total is not None and length is not None and total < length:
        dataset = dataset.take(total)
    if length is None and even is not None and size > 1:
        return without_autotune(_part_by_groups(dataset, rank, size, even))
    return without_autotune(dataset.shard(size, rank))


def _shuffled(dataset: tf.data.Dataset, buffer_size: int, seed: int) -> tf.data.Dataset:
    """Another order at each iteration, but the same on all ranks."""
    with _no_global_seed():
        return dataset.shuffle(max(buffer_size, 1), seed=seed, reshuffle_each_iteration=True)


def _part_by_groups(dataset: tf.data.Dataset, rank: int, size: int, even: str) -> tf.data.Dataset:
    """Without the length: elements in groups of `size`, one for each rank; the last group is dropped or filled up.

    A window keeps each element as it is, so that they may differ in shape.
    """

    def mine(*group: Any) -> tf.data.Dataset:
        elements = tf.data.Dataset.zip(group[0] if len(group) == 1 else group)
        return (elements.repeat() if even == "pad" else elements).skip(rank).take(1)

    return dataset.window(size, drop_remainder=even == "drop").flat_map(mine)


@contextlib.contextmanager
def _no_global_seed() -> Iterator[None]:
    """TensorFlow mixes the global seed into a seed that is given, and ranks may have set different ones."""
    global_seed = tf.compat.v1.random.get_seed(0)[0]
    if global_seed == _NO_GLOBAL_SEED:
        yield
        return
    tf.random.set_seed(_NO_GLOBAL_SEED)
    try:
        yield
    finally:
        tf.random.set_seed(global_seed)

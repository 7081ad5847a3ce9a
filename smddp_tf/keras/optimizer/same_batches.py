"""Finds out whether all ranks train on the same batches: forgotten sharding makes every rank do the same work.

A callback does not see batches, but their gradients pass through here before they are reduced, and equal weights with
different batches never give equal gradients, bit for bit, over a whole epoch. The reverse does not hold (dropout or an
augmentation differ between ranks), so this misses some, and never blames wrongly.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from smddp_tf.basics import size
from smddp_tf.collectives.rank_facts import numbers_of_ranks, warn_once_on_rank_zero
from smddp_tf.keras.roles import running

# A few values of a few gradients do: one gradient alone may not depend on the data (the bias under a linear loss).
_GRADIENTS, _VALUES = 4, 256
_FACTOR = 1_000_003  # makes the order of steps count


@functools.cache
def _fingerprint() -> tf.Variable:
    """Of all gradients noted since `begin`. A variable, as steps are graphs; 0: nothing but zeros."""
    with tf.init_scope():
        return tf.Variable(0, dtype=tf.int64, trainable=False, name="smddp_fingerprint")


def begin() -> None:
    """Forgets what was noted. Before the first step, so that tracing it does not make the variable."""
    _fingerprint().assign(0)


def is_watching() -> bool:
    """Is this in a `fit` that compares the gradients of the ranks' steps at the end of its first epoch?"""
    return any(plan.is_guarded for plan in running.here.plans)


def note(grads: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> None:
    """Adds this rank's own gradients of one step, eagerly or in the graph that is being traced.

    Costs some small ops in each step, on at most 4 x 256 values.

    Args:
        grads: list of `tf.Tensor`, `tf.IndexedSlices` or None, before they are reduced.
    """
    values = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
    usable = [value for value in values if value is not None and value.dtype.is_floating]
    if size() == 1 or not usable:
        return
    last = len(usable) - 1
    chosen = sorted({last * i // (_GRADIENTS - 1) for i in range(_GRADIENTS)})
    bits = tf.concat([_sample_bits(usable[index]) for index in chosen], 0)
    # Positions count too, so that the same numbers elsewhere make another sum.
    positions = tf.range(1, tf.size(bits, tf.int64) + 1, dtype=tf.int64)
    value = _fingerprint()
    value.assign(value * _FACTOR + tf.reduce_sum(bits * positions))


def warn_if_same() -> None:
    """Compares the ranks; all of them must call it. Warns on rank 0, once in a process."""
    if size() == 1:
        return
    of_ranks = numbers_of_ranks([int(_fingerprint())], "model.fit (do the batches differ)")[:, 0]
    if (of_ranks == of_ranks[0]).all() and of_ranks[0] != 0:
        warn_once_on_rank_zero(
            "All ranks seem to train on the same batches: their gradients were equal, bit for bit, through an epoch. "
            f"Then {size()} ranks do the work of one. Give each rank its part of the data, for example "
            "model.fit(smddp_tf.data.shard(dataset).batch(...)).",
        )


def _sample_bits(tensor: tf.Tensor) -> tf.Tensor:
    """Some 256 values from all over the tensor, as the integers that their float32 bits are.

    Those of zeros and of what is not finite are 0.
    """
    flat = tf.reshape(tensor, [-1])
    count = tensor.shape.num_elements()
    flat = flat[:: max(1, count // _VALUES)] if count is not None else flat[:_VALUES]
    flat = tf.cast(flat, tf.float32)
    flat = tf.where(tf.math.is_finite(flat) & (flat != 0.0), flat, tf.zeros_like(flat))  # -0 has another pattern
    return tf.cast(tf.bitcast(flat, tf.int32), tf.int64)

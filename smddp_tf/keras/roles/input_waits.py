"""Measures how long training steps wait for their batches, inside of Keras's train function.

Keras gets the next batch in the graph of the step, from an iterator whose `get_next` reads the clock before and after.
That works in every version of Keras, with `jit_compile` and with several steps in one call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.keras.roles.step_hooks import rows_of

# Not of a dataset: TensorFlow must not be initialized by this import, as its devices could not be configured any more.
_Iterator: Any = tf.data.IteratorSpec(tf.TensorSpec([])).value_type


class Counted(NamedTuple):
    """Sums over all batches from timed iterators of this process.

    Attributes:
        seconds: of waiting.
        batches: their number.
        samples: their number, without those of padding.
    """

    seconds: float
    batches: float
    samples: float


def counted() -> Counted:
    """Returns the present sums. The raw operation takes a quarter of the time of `numpy()`."""
    return Counted(*tf.raw_ops.ReadVariableOp(resource=_sums().handle, dtype=tf.float64).numpy().tolist())


def take_back(batches: float) -> None:
    """Subtracts the last batches, which were padding on all ranks and so no steps.

    Args:
        batches: their number.
    """
    _sums().assign_sub([0.0, batches, 0.0])


class Timed:
    """Replaces a dataset of which Keras makes iterators: they are timed."""

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Any:
        return timed(iter(self._dataset))


def timed(iterator: tf.data.Iterator) -> tf.data.Iterator:
    """Returns a timed iterator over the remaining batches of `iterator`."""
    if isinstance(iterator, _TimedIterator):
        return iterator
    timed_one = _TimedIterator(components=(iterator._iterator_resource,), element_spec=iterator.element_spec)
    timed_one.of = iterator  # owns what it is made of
    return timed_one


class _Spec(tf.data.IteratorSpec):
    @property
    def value_type(self) -> Any:
        return _TimedIterator

    def _from_components(self, components: object) -> Any:
        return _TimedIterator(components=components, element_spec=self._element_spec)


class _TimedIterator(_Iterator):
    @property
    def _type_spec(self) -> Any:
        return _Spec(self.element_spec)

    @tf.autograph.experimental.do_not_convert
    def _next_internal(self) -> Any:
        return _measured(super()._next_internal, _samples)

    @tf.autograph.experimental.do_not_convert
    def get_next_as_optional(self) -> Any:
        def samples(optional: tf.experimental.Optional) -> tf.Tensor:
            none = tf.constant(0.0, tf.float64)
            return tf.cond(optional.has_value(), lambda: _samples(optional.get_value()), lambda: none)

        return _measured(
            super().get_next_as_optional, samples, lambda optional: tf.cast(optional.has_value(), tf.float64)
        )


@functools.cache
def _sums() -> tf.Variable:
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(tf.zeros([3], tf.float64), trainable=False)


def _measured(get: Callable[[], Any], samples: Callable[[Any], Any], batches: Any = lambda batch: 1.0) -> Any:
    with tf.device("CPU:0"):
        begin = tf.timestamp()
    with tf.control_dependencies([begin]):
        batch = get()
    leaves = [leaf for leaf in tf.nest.flatten(batch, expand_composites=True) if leaf is not None]
    with tf.device("CPU:0"), tf.control_dependencies(leaves):
        _sums().assign_add(tf.stack([tf.timestamp() - begin, batches(batch), samples(batch)]))
    return batch


def _samples(batch: object) -> tf.Tensor:
    """The samples of a batch, or of a pair (flag, batch) where data may be uneven; a pair with flag 0 is padding."""
    if isinstance(batch, tuple) and len(batch) == 2 and getattr(batch[0], "shape", tf.TensorShape([1])).rank == 0:
        flag, batch = batch
        return tf.where(flag > 0.5, rows_of(batch), tf.constant(0.0, tf.float64))
    return rows_of(batch)

"""How long training steps wait for their batches, measured inside of Keras's train function.

Keras takes the next batch in the graph of the step. So the iterator it gets is one whose `get_next` notes the time
before and after. That works in every version of Keras, with `jit_compile` and several steps in one call as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.keras.roles.step_hooks import rows_of

# Not of a dataset: TensorFlow must not be initialized by this import, as its devices could not be configured any more.
_Iterator: Any = tf.data.IteratorSpec(tf.TensorSpec([])).value_type


class Counted(NamedTuple):
    """Sums over all batches that timed iterators of this process have given."""

    seconds: float
    batches: float
    samples: float  # not those of padding


def counted() -> Counted:
    """The sums now. Reads the variable by the bare operation, which takes a quarter of the time of `numpy()`."""
    return Counted(*tf.raw_ops.ReadVariableOp(resource=_sums().handle, dtype=tf.float64).numpy().tolist())


def take_back(batches: float) -> None:
    """The last ones were padding on all ranks, which found the end of the data: they were no steps."""
    _sums().assign_sub([0.0, batches, 0.0])


class Timed:
    """What Keras makes its iterators of, in the place of a dataset."""

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        iterator: Iterator[Any] = timed(iter(self._dataset))
        return iterator


def timed(iterator: tf.data.Iterator) -> tf.data.Iterator:
    """The same iterator, timed."""
    if isinstance(iterator, _TimedIterator):
        return iterator
    ours = _TimedIterator(components=(iterator._iterator_resource,), element_spec=iterator.element_spec)
    ours.of = iterator  # owns what it is made of
    return ours


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
        return _noting(super()._next_internal, _samples)

    @tf.autograph.experimental.do_not_convert
    def get_next_as_optional(self) -> Any:
        def samples(optional: tf.experimental.Optional) -> tf.Tensor:
            none = tf.constant(0.0, tf.float64)
            return tf.cond(optional.has_value(), lambda: _samples(optional.get_value()), lambda: none)

        return _noting(
            super().get_next_as_optional, samples, lambda optional: tf.cast(optional.has_value(), tf.float64)
        )


@functools.cache
def _sums() -> tf.Variable:
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(tf.zeros([3], tf.float64), trainable=False)


def _noting(get: Callable[[], Any], samples: Callable[[Any], Any], batches: Any = lambda batch: 1.0) -> Any:
    with tf.device("CPU:0"):
        asked = tf.timestamp()
    with tf.control_dependencies([asked]):
        batch = get()
    arrived = [leaf for leaf in tf.nest.flatten(batch, expand_composites=True) if leaf is not None]
    with tf.device("CPU:0"), tf.control_dependencies(arrived):
        _sums().assign_add(tf.stack([tf.timestamp() - asked, batches(batch), samples(batch)]))
    return batch


def _samples(batch: object) -> tf.Tensor:
    """Those of a batch. Where ranks may differ it comes as (flag, batch), and flag 0 is padding."""
    if isinstance(batch, tuple) and len(batch) == 2 and getattr(batch[0], "shape", tf.TensorShape([1])).rank == 0:
        flag, batch = batch
        return tf.where(flag > 0.5, rows_of(batch), tf.constant(0.0, tf.float64))
    return rows_of(batch)

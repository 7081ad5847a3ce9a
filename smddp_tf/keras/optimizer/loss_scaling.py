"""Reduces before the finite check when Keras puts a LossScaleOptimizer around a wrapped optimizer.

`model.compile` does so under the `mixed_float16` policy. A `LossScaleOptimizer` first asks whether the gradients are
finite and calls the inner optimizer only if they are. Asked about local gradients, ranks would answer differently,
take different steps and wait for each other for ever. The outer optimizer is made after the inner one was wrapped, by
Keras, so there is no object of ours to put in its place: methods of its class are replaced, once. They do what the old
ones do wherever the inner optimizer is not ours.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.collectives import ops
from smddp_tf.collectives.reduce_op import Min
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras
from smddp_tf.keras.optimizer.adopted import adopt
from smddp_tf.keras.optimizer.pipeline import apply_reduced
from smddp_tf.keras.optimizer.reducing import attach
from smddp_tf.keras.roles.wrapping import is_wrapped, reducer_of


@functools.cache
def reduce_before_finite_check() -> None:
    """Installs the replacements; does nothing the second time."""
    plain_reduce = keras.optimizers.LossScaleOptimizer.__reduce__
    patches.replace(patch_table.SCALED_APPLY, _reducing)
    patches.replace(patch_table.SCALED_CHECK, _agreeing)
    if patches.replace(patch_table.SCALED_PICKLE, _pickled):
        patches.replace(patch_table.SCALED_COPY, lambda _: _copied(plain_reduce))
        patches.replace(patch_table.SCALED_DEEPCOPY, lambda _: _copied(plain_reduce))


def _reducing(plain_apply: Any) -> Any:
    """`apply` that reduces first. Where an outer optimizer has reduced, all goes through."""

    @functools.wraps(plain_apply)
    def apply(self: Any, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        if adopt(self):
            return self.apply(grads, trainable_variables)
        if not is_wrapped(self.inner_optimizer):
            return plain_apply(self, grads, trainable_variables)
        grads, plain = list(grads), functools.partial(plain_apply, self)
        update = reducer_of(self.inner_optimizer).update_of(self, plain, grads, trainable_variables)
        return apply_reduced(update, grads)

    return apply


def _agreeing(plain_check: Any) -> Any:
    """`check_finite` that asks all ranks: each has a part of the gradients, or a subclass asks too early."""
    our_apply = keras.optimizers.LossScaleOptimizer.apply

    @functools.wraps(plain_check)
    def check_finite(self: Any, grads: Sequence[Any]) -> Any:
        finite = plain_check(self, grads)
        if not is_wrapped(self.inner_optimizer):
            return finite
        reducer = reducer_of(self.inner_optimizer)
        if reducer.sharded() is None and (type(self).apply is our_apply or reducer.update is not None):
            return finite
        name = of_thread(f"{reducer.name}.finite")
        return tf.cast(ops.allreduce(tf.cast(finite, tf.int32), op=Min, name=name), tf.bool)

    return check_finite


def _pickled(plain_reduce: Any) -> Any:
    """`__reduce__`: Keras pickles a configuration, from which the inner optimizer would come back as a plain one."""

    @functools.wraps(plain_reduce)
    def __reduce__(self: Any) -> Any:
        rebuild, arguments = plain_reduce(self)
        if _is_around_ours(self):
            return _rebuilt, (rebuild, arguments, reducer_of(self.inner_optimizer).settings)
        return rebuild, arguments

    return __reduce__


def _copied(plain_reduce: Any) -> Any:
    """`__copy__` and `__deepcopy__`: the same in one process, where local variables stay local."""

    def __deepcopy__(self: Any, memo: dict[int, Any] | None = None) -> Any:
        rebuild, arguments = plain_reduce(self)
        if not _is_around_ours(self):
            return rebuild(*arguments)
        reducer = reducer_of(self.inner_optimizer)
        return _rebuilt(rebuild, arguments, reducer.settings, reducer.local)

    return __deepcopy__


def _is_around_ours(scaled: Any) -> bool:
    return is_wrapped(scaled.inner_optimizer) and not is_wrapped(scaled)


def _rebuilt(rebuild: Any, arguments: Any, settings: Any, local: Any = None) -> Any:
    optimizer = rebuild(*arguments)
    attach(optimizer.inner_optimizer, settings, local)
    return optimizer

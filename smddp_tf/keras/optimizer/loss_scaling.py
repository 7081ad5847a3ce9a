"""Reduces before the finite check when Keras puts a LossScaleOptimizer around a wrapped optimizer.

`model.compile` does so under the `mixed_float16` policy. A `LossScaleOptimizer` first asks whether the gradients are
finite and calls the inner optimizer only if they are. Asked about local gradients, ranks would answer differently,
take different steps and wait for each other for ever. The outer optimizer is made after the inner one was wrapped, by
Keras, so no other object can replace it: methods of its class are wrapped, once. They change nothing where the inner
optimizer is not wrapped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.collectives import ops
from smddp_tf.collectives.reduce_op import Min
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras
from smddp_tf.keras.optimizer.auto_wrap import wrap_for_distribution
from smddp_tf.keras.optimizer.pipeline import apply_reduced
from smddp_tf.keras.optimizer.reducing import attach
from smddp_tf.keras.roles.wrapping import is_wrapped, reducer_of


@functools.cache
def reduce_before_finite_check() -> None:
    """Installs the replacements; does nothing the second time."""
    patches.wrap(patch_table.SCALED_APPLY, _apply)
    patches.wrap(patch_table.SCALED_CHECK, _check_finite)
    if patches.wrap(patch_table.SCALED_PICKLE, _reduce):
        patches.wrap(patch_table.SCALED_COPY, _copy)
        patches.wrap(patch_table.SCALED_DEEPCOPY, _copy)


def _apply(plain: Callable[..., Any], self: Any, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
    """Reduces first, unless an outer optimizer has."""
    if wrap_for_distribution(self):
        return self.apply(grads, trainable_variables)
    if not is_wrapped(self.inner_optimizer):
        return plain(self, grads, trainable_variables)
    grads, plain = list(grads), functools.partial(plain, self)
    update = reducer_of(self.inner_optimizer).update_of(self, plain, grads, trainable_variables)
    return apply_reduced(update, grads)


def _check_finite(plain: Callable[..., Any], self: Any, grads: Sequence[Any]) -> Any:
    """Asks all ranks, where each has a part of the gradients, or where a subclass asks too early."""
    finite = plain(self, grads)
    if not is_wrapped(self.inner_optimizer):
        return finite
    reducer = reducer_of(self.inner_optimizer)
    has_own_apply = type(self).apply is not keras.optimizers.LossScaleOptimizer.apply
    if reducer.sharded() is None and (not has_own_apply or reducer.update is not None):
        return finite
    name = of_thread(f"{reducer.name}.finite")
    return tf.cast(ops.allreduce(tf.cast(finite, tf.int32), op=Min, name=name), tf.bool)


def _reduce(plain: Callable[..., Any], self: Any) -> Any:
    """Keras pickles a configuration, from which the inner optimizer would be restored as a plain one."""
    rebuild, arguments = plain(self)
    if _is_around_wrapped(self):
        return _rebuilt, (rebuild, arguments, reducer_of(self.inner_optimizer).settings)
    return rebuild, arguments


def _copy(plain: None, self: Any, memo: dict[int, Any] | None = None) -> Any:
    """As `_reduce`, in one process, where local variables stay local."""
    rebuild, arguments = keras.optimizers.LossScaleOptimizer.__reduce__(self)
    local = [reducer_of(self.inner_optimizer).local] if _is_around_wrapped(self) else []
    return rebuild(*arguments, *local)


def _is_around_wrapped(scaled: Any) -> bool:
    return is_wrapped(scaled.inner_optimizer) and not is_wrapped(scaled)


def _rebuilt(rebuild: Any, arguments: Any, settings: Any, local: Any = None) -> Any:
    optimizer = rebuild(*arguments)
    attach(optimizer.inner_optimizer, settings, local)
    return optimizer

"""What a wrapped optimizer does with gradients: which of them are reduced, when, and who then applies them.

The order is always: add up the passes (where an update has several), reduce over the ranks, test for infinities, clip,
update. So every rank tests, clips and applies the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.keras.fit import active_ranks
from smddp_tf.keras.optimizer.accumulation import KerasWindow, innermost, iterations_of

__all__ = ["apply_reduced"]


def apply_reduced(optimizer: Any, reducer: Any, apply: Callable[..., Any], grads: Any, given: Any) -> Any:
    """Reduces `grads`, once for each update, and lets Keras's `apply` do the rest.

    Args:
        optimizer: the outermost optimizer that is ours: a `LossScaleOptimizer` where there is one.
        reducer: the `OptimizerReducer` to use. While it is paused, gradients go straight through.
        apply: `apply(grads, trainable_variables)` of the optimizer's own class.
        grads: gradients or None, as Keras takes them.
        given: the variables, or None for those the optimizer was built with.
    """
    grads = list(grads)
    given = None if given is None else list(given)
    variables = _variables_of(optimizer, grads, given)
    if variables is None or reducer.is_paused:
        return apply(grads, given)  # what Keras refuses is left to its own error
    reducer.refuse_reduced(grads, variables)
    active = active_ranks.current()
    if active is None or not _has_passes(optimizer, reducer):
        return _apply(optimizer, reducer, apply, grads, given, variables)
    window = reducer.open_window()
    active.agree_on_pass()

    def one_pass() -> Any:
        window.add(active.flag)
        return _apply(optimizer, reducer, apply, active.masked(grads), given, variables)

    return active_ranks.unless_skipped(optimizer, variables, one_pass)


def _has_passes(optimizer: Any, reducer: Any) -> bool:
    return bool(innermost(optimizer).gradient_accumulation_steps) or reducer.passes is not None


def _apply(optimizer: Any, reducer: Any, apply: Callable[..., Any], grads: Any, given: Any, variables: Any) -> Any:
    inner = innermost(optimizer)
    scaled = inner is not optimizer
    accumulates = bool(inner.gradient_accumulation_steps)
    has_passes = _has_passes(optimizer, reducer)
    if accumulates and not scaled:
        return apply(grads, given)  # asks for the reducer itself, when an update is due: see `wrap_class`

    def update(sums: Sequence[Any]) -> Any:
        reduced = reducer(_marked(sums, reducer.keeps(variables)) if scaled else sums, variables)

        def finish() -> Any:
            with reducer.paused():
                return apply(reduced, given)

        return finish() if has_passes else active_ranks.unless_skipped(optimizer, variables, finish)

    def accumulate(unscaled: Sequence[Any]) -> None:
        with reducer.paused():
            inner.apply(unscaled, given)

    if not has_passes:
        return update(grads)
    if not optimizer.built:
        optimizer.build(variables)  # here, because a branch of a graph cannot create variables
    if accumulates:
        return KerasWindow(optimizer).apply(grads, variables, update, accumulate)
    grads = reducer.dense(grads, variables)
    return reducer.passes.apply(grads, variables, update, lambda: iterations_of(inner).assign_add(1))


def _variables_of(optimizer: Any, grads: Sequence[Any], given: Sequence[Any] | None) -> list[Any] | None:
    """The variables that belong to `grads`, or None where Keras will do nothing or raise."""
    if given is None:
        given = innermost(optimizer)._trainable_variables if optimizer.built else []
        return list(given) if len(given) == len(grads) else None
    return list(given) if grads else None


def _marked(grads: Sequence[Any], kept: set[int]) -> list[Any]:
    """Turns a gradient that travels into NaN where one that stays on this rank is not finite.

    A `LossScaleOptimizer` tests all of them. The others would not see what stays here, and would not skip the step.

    Args:
        kept: the indices of those that stay.
    """
    local = [grad for index, grad in enumerate(grads) if grad is not None and index in kept]
    if not local:
        return list(grads)
    values = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in local]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.cast(value, tf.float32))) for value in values])
    marked = list(grads)
    for index, grad in enumerate(grads):
        if grad is not None and index not in kept and not isinstance(grad, tf.IndexedSlices):
            marked[index] = tf.where(finite, grad, tf.cast(float("nan"), grad.dtype))
            break
    return marked

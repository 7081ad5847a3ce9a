"""What a wrapped optimizer does with gradients: when they are reduced, and the stages of a reduction in their order.

The order is always: add up the passes (where an update has several), reduce over the ranks, test for infinities, clip,
update. So every rank tests, clips and applies the same numbers.

`when_reduced` is the only place that decides when. `reduce_gradients` is the only place that knows what happens to a
list of gradients on its way to the other ranks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.gradients import reduced_once
from smddp_tf.gradients.local_sources import replaced
from smddp_tf.keras.fit import active_ranks, same_batches
from smddp_tf.keras.optimizer.accumulation import KerasWindow, innermost, iterations_of, stays_local
from smddp_tf.keras.optimizer.optimizer_reducer import OptimizerReducer

__all__ = ["When", "apply_reduced", "reduce_gradients", "refuse_reduced", "when_reduced"]


class When(enum.Enum):
    """When the gradients that an optimizer's `apply` gets are reduced over the ranks."""

    BEFORE = "Another optimizer around this one has reduced them: they go straight through."
    EACH_CALL = "In each call, before Keras sees them."
    AFTER_PASSES = "When the passes of `backward_passes_per_step` are added up, before Keras sees the sums."
    AFTER_WINDOW = "When Keras's passes are added up, before the finite check of the `LossScaleOptimizer` around them."
    IN_UPDATE = "Where Keras, which adds up the passes itself, updates the variables: in `_backend_update_step`."


def when_reduced(optimizer: Any, reducer: OptimizerReducer) -> When:
    """The one answer.

    Args:
        optimizer: the outermost optimizer that is ours: a `LossScaleOptimizer` where there is one.
        reducer: of the optimizer.
    """
    if reducer.is_paused:
        return When.BEFORE
    inner = innermost(optimizer)
    if inner.gradient_accumulation_steps:
        return When.IN_UPDATE if inner is optimizer else When.AFTER_WINDOW
    return When.EACH_CALL if reducer.passes is None else When.AFTER_PASSES


def apply_reduced(optimizer: Any, reducer: OptimizerReducer, apply: Callable[..., Any], grads: Any, given: Any) -> Any:
    """Reduces `grads`, once for each update, and lets Keras's `apply` do the rest.

    Args:
        optimizer: see `when_reduced`.
        reducer: the same.
        apply: `apply(grads, trainable_variables)` of the optimizer's own class.
        grads: gradients or None, as Keras takes them.
        given: the variables, or None for those the optimizer was built with.
    """
    grads = list(grads)
    given = None if given is None else list(given)
    variables = _variables_of(optimizer, grads, given)
    when = when_reduced(optimizer, reducer)
    if variables is None or when is When.BEFORE:
        return apply(grads, given)  # what Keras refuses is left to its own error
    refuse_reduced(reducer, grads, variables)
    call = _Call(optimizer, reducer, apply, given, variables)
    active = active_ranks.current()
    if when is When.EACH_CALL:
        reduced = call.reduced(grads)
        if active is None:
            return call.apply_paused(reduced)
        return active_ranks.unless_skipped(optimizer, variables, lambda: call.apply_paused(reduced))
    if active is None:
        return call.apply_pass(when, grads)
    window = reducer.open_window()
    active.agree_on_pass()

    def one_pass() -> Any:
        window.add(active.flag)
        return call.apply_pass(when, active.masked(grads))

    return active_ranks.unless_skipped(optimizer, variables, one_pass)


class _Call(NamedTuple):
    """One call of `apply_reduced`: its arguments, and the variables that belong to its gradients."""

    optimizer: Any
    reducer: OptimizerReducer
    apply: Callable[..., Any]
    given: list[Any] | None
    variables: list[Any]

    def apply_pass(self, when: When, grads: Sequence[Any]) -> Any:
        """One of several passes of an update."""
        if when is When.IN_UPDATE:
            return self.apply(grads, self.given)
        if not self.optimizer.built:
            self.optimizer.build(self.variables)  # here, because a branch of a graph cannot create variables
        if when is When.AFTER_WINDOW:
            return KerasWindow(self.optimizer).apply(grads, self.variables, self._update, self._accumulate)
        assert self.reducer.passes is not None
        counter = iterations_of(innermost(self.optimizer))
        dense = self.reducer.dense(grads, self.variables)
        return self.reducer.passes.apply(dense, self.variables, self._update, lambda: counter.assign_add(1))

    def reduced(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients of an update, reduced; a `LossScaleOptimizer` must still find every infinity."""
        if innermost(self.optimizer) is not self.optimizer:
            grads = _marked(grads, _kept(self.reducer, self.variables))
        return reduce_gradients(self.reducer, grads, self.variables)

    def apply_paused(self, reduced: Sequence[Any]) -> Any:
        """Keras's part."""
        with self.reducer.paused():
            return self.apply(reduced, self.given)

    def _update(self, sums: Sequence[Any]) -> Any:
        return self.apply_paused(self.reduced(sums))

    def _accumulate(self, unscaled: Sequence[Any]) -> None:
        with self.reducer.paused():
            innermost(self.optimizer).apply(unscaled, self.given)


def reduce_gradients(reducer: OptimizerReducer, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Returns the gradients as they are applied: reduced over the ranks, but for those that stay on this rank.

    The stages, in order: choose the shared and the local gradients; note the shared ones for the check that ranks have
    different batches; zeros for a rank without data; reduce; divide the local ones as a mean divides; put all back.
    The scales of float8 layers, which pass for gradients, go through as they are.

    Args:
        reducer: of the optimizer.
        grads: tensors, `tf.IndexedSlices` or None: of one step, or the sums of several passes.
        variables: what they are the gradients of.
    """
    local = sorted(reducer.local.indices(variables))
    kept = {*local, *_scales(variables)}
    shared = [index for index in range(len(grads)) if index not in kept]
    changed = (*shared, *local)
    if same_batches.is_watching():
        same_batches.note([grads[index] for index in shared])
    active = active_ranks.current()
    if active is not None and reducer.window is None:  # the passes of a window are masked one by one
        grads = replaced(grads, changed, active.masked([grads[index] for index in changed]))
    reduced = _over_ranks(reducer, active, [grads[i] for i in shared], [variables[i] for i in shared])
    divided = reducer.local.divided([grads[i] for i in local])
    return replaced(grads, changed, (*reduced, *divided))


def refuse_reduced(reducer: OptimizerReducer, grads: Sequence[Any], variables: Sequence[Any]) -> None:
    """Raises a ValueError where gradients that would be reduced here come from `hvd.DistributedGradientTape`."""
    kept = _kept(reducer, variables)
    shared = [None if index in kept else grad for index, grad in enumerate(grads)]
    reduced_once.refuse(shared, variables, reducer.settings.process_set)


def _over_ranks(
    reducer: OptimizerReducer, active: active_ranks.ActiveRanks | None, grads: list[Any], variables: list[Any]
) -> list[Any]:
    over_ranks = reducer.over_ranks(variables)
    if active is None:
        return over_ranks(grads, variables)
    settings = reducer.settings
    return active.reduced(over_ranks, grads, variables, settings.op, settings.process_set, reducer.window)


def _kept(reducer: OptimizerReducer, variables: Sequence[Any]) -> set[int]:
    """The indices of the variables whose gradients stay on this rank, for whatever reason."""
    return reducer.local.indices(variables) | _scales(variables)


def _scales(variables: Sequence[Any]) -> set[int]:
    """The indices of the scales of float8 layers."""
    return {index for index, variable in enumerate(variables) if stays_local(variable)}


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
        grads: tensors, `tf.IndexedSlices` or None.
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

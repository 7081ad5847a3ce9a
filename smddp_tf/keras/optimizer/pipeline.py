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

from smddp_tf.collectives.layouts import layout_of
from smddp_tf.gradients import reduced_once
from smddp_tf.gradients.local_sources import replaced
from smddp_tf.keras.optimizer import same_batches
from smddp_tf.keras.optimizer.accumulation import KerasWindow
from smddp_tf.keras.optimizer.optimizer_reducer import OptimizerReducer
from smddp_tf.keras.roles import active_ranks
from smddp_tf.keras.roles.optimizers import innermost, iterations_of, stays_local
from smddp_tf.keras.roles.wrapping import is_wrapped


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
    if inner.gradient_accumulation_steps and reducer.sharded() is None:
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
    variables = _variables_of(optimizer, reducer, grads, given)
    when = when_reduced(optimizer, reducer)
    if variables is None or when is When.BEFORE:
        return apply(grads, given)  # what Keras refuses is left to its own error
    by_tape = reduced_by_tape(reducer, grads, variables)
    _refuse_norms(innermost(optimizer), variables)
    call = _Call(optimizer, reducer, apply, given, variables)
    active = active_ranks.current()
    if by_tape and when is When.EACH_CALL and reducer.sharded() is None:  # otherwise the mean of equal means
        return call.apply_paused(grads)
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
        window.add(active.flag_of_pass())
        return call.apply_pass(when, active.masked_in_pass(grads, variables))

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
        """The gradients of an update, reduced: `reduce_gradients`, unless the user's program has replaced it."""
        inner = innermost(self.optimizer)
        self.reducer.is_scaled = inner is not self.optimizer
        ours = self.optimizer if is_wrapped(self.optimizer) else inner
        return list(ours._allreduce(grads, self.variables))

    def apply_paused(self, reduced: Sequence[Any]) -> Any:
        """Keras's part."""
        with self.reducer.paused():
            return self.apply(reduced, self.given)

    def _update(self, sums: Sequence[Any]) -> Any:
        return self.apply_paused(self.reduced(sums))

    def _accumulate(self, unscaled: Sequence[Any]) -> None:
        with self.reducer.paused():
            innermost(self.optimizer).apply(unscaled, self.given)


def methods_for(reducer_of: Callable[[Any], OptimizerReducer]) -> dict[str, Any]:
    """Returns the methods of Horovod's wrapped optimizers that programs call, and replace on one optimizer object.

    Whatever applies gradients calls `_allreduce`, and that `_allreduce_grads`: a replacement is used everywhere.

    Args:
        reducer_of: gives the reducer of an optimizer.
    """

    def _allreduce(self: Any, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Returns gradients as they are applied: `reduce_gradients`."""
        is_ours = getattr(self._allreduce_grads, "__func__", None) is _allreduce_grads
        over_ranks = None if is_ours else self._allreduce_grads
        return reduce_gradients(reducer_of(self), list(grads), list(vars), over_ranks)

    def _allreduce_grads(
        self: Any, grads: Sequence[Any], vars: Sequence[Any], use_generic_names: bool = False
    ) -> list[Any]:
        """Returns gradients reduced over the ranks. They travel by their positions, so names never matter."""
        del use_generic_names
        return reducer_of(self).over_ranks(vars)(list(grads), list(vars))

    def register_local_var(self: Any, var: Any) -> None:
        """Keeps the gradients of a variable on this rank. Call it before training, or before `_allreduce` reduces."""
        reducer_of(self).local.add(var)

    return {
        "_allreduce": _allreduce,
        "_allreduce_grads": _allreduce_grads,
        "_agg_helper": property(lambda self: reducer_of(self).passes),
        "register_local_var": register_local_var,
        "_compute_gradients": own_gradients,  # Keras 2 has its own
    }


def reduce_gradients(
    reducer: OptimizerReducer,
    grads: Sequence[Any],
    variables: Sequence[Any],
    over_ranks: Callable[[list[Any], list[Any]], Any] | None = None,
) -> list[Any]:
    """Returns the gradients as they are applied: reduced over the ranks, but for those that stay on this rank.

    The stages, in order: choose the shared and the local gradients; let a `LossScaleOptimizer` find the infinities of
    both; note the shared ones for the check that ranks have different batches; zeros for a rank without data; reduce;
    divide the local ones as a mean divides; put all back. The scales of float8 layers, which pass for gradients, go
    through as they are.

    Args:
        reducer: of the optimizer.
        grads: tensors, `tf.IndexedSlices` or None: of one step, or the sums of several passes.
        variables: what they are the gradients of.
        over_ranks: `over_ranks(grads, variables)` reduces. Defaults to what the reducer says.
    """
    local = sorted(reducer.local.indices(variables))
    kept = {*local, *_scales(variables)}
    shared = [index for index in range(len(grads)) if index not in kept]
    changed = (*shared, *local)
    if reducer.is_scaled:
        grads = _marked(grads, kept)
    if same_batches.is_watching():
        same_batches.note([grads[index] for index in shared])
    active = active_ranks.current()
    if active is not None and reducer.window is None:  # the passes of a window are masked one by one
        masked = active.masked([grads[index] for index in changed], [variables[index] for index in changed])
        grads = replaced(grads, changed, masked)
    complete = [index for index in local if layout_of(variables[index]) is not None]
    own = [index for index in local if index not in complete]
    divided = reducer.local.divided([grads[index] for index in (*own, *complete)])
    reduced = _over_ranks(
        reducer, over_ranks, [grads[i] for i in shared], [variables[i] for i in shared], divided[len(own) :]
    )
    return replaced(grads, (*shared, *complete, *own), (*reduced, *divided[: len(own)]))


def reduced_by_tape(reducer: OptimizerReducer, grads: Sequence[Any], variables: Sequence[Any]) -> bool:
    """Whether `hvd.DistributedGradientTape` has reduced the gradients; an error where that would give other numbers."""
    kept = _kept(reducer, variables)
    shared = [None if index in kept else grad for index, grad in enumerate(grads)]
    op = reducer.settings.op if active_ranks.current() is None else None
    return reduced_once.by_tape(shared, variables, reducer.settings.process_set, op)


def _refuse_norms(optimizer: Any, variables: Sequence[Any]) -> None:
    """Raises a NotImplementedError where an update of cut tables depends on more than single elements of them."""
    if all(layout_of(each) is None for each in variables):
        return
    names = {each.__name__ for each in type(optimizer).__mro__} & {"Adafactor", "Lamb", "Muon"}
    if names or optimizer.clipnorm or optimizer.global_clipnorm:
        raise NotImplementedError(
            "Adafactor, Lamb, Muon, `clipnorm` and `global_clipnorm` would see one rank's part only of tables that are "
            f"cut over ranks. Received: {type(optimizer).__name__} with clipnorm={optimizer.clipnorm}, global_clipnorm="
            f"{optimizer.global_clipnorm}. Use `clipvalue`, another optimizer, or placement='default_device'."
        )


def _over_ranks(
    reducer: OptimizerReducer, over_ranks: Any, grads: list[Any], variables: list[Any], complete: list[Any]
) -> list[Any]:
    """The gradients reduced, and after them `complete`, those of marked variables."""
    over_ranks = over_ranks or reducer.over_ranks(variables)
    active = active_ranks.current()
    if active is None:
        return [*over_ranks(grads, variables), *complete]
    settings = reducer.settings
    return active.reduced(over_ranks, grads, variables, settings.op, settings.process_set, reducer.window, complete)


def _kept(reducer: OptimizerReducer, variables: Sequence[Any]) -> set[int]:
    """The indices of the variables whose gradients stay on this rank, for whatever reason."""
    return reducer.local.indices(variables) | _scales(variables)


def _scales(variables: Sequence[Any]) -> set[int]:
    """The indices of the scales of float8 layers."""
    return {index for index, variable in enumerate(variables) if stays_local(variable)}


def _variables_of(
    optimizer: Any, reducer: OptimizerReducer, grads: Sequence[Any], given: Sequence[Any] | None
) -> list[Any] | None:
    """The variables that belong to `grads`, or None where Keras will do nothing or raise."""
    if given is None:
        state = reducer.sharded()
        trained = innermost(optimizer)._trainable_variables if state is None else state.wholes
        given = trained if optimizer.built else []
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


def own_gradients(
    self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: tf.GradientTape | None = None
) -> list[tuple[Any, Any]]:
    """Returns this rank's own gradients, in pairs with the variables. What applies them reduces them.

    Args:
        loss: a tensor that `tape` has recorded, or a function that returns the loss.
        var_list: list of variables, or a function that returns it.
        grad_loss: what the gradients are multiplied by.
        tape: needed where `loss` is a tensor.

    Raises:
        ValueError: `loss` is a tensor, and there is no tape.
    """
    if callable(loss):
        with tf.GradientTape() as tape:
            loss = loss()
    elif tape is None:
        raise ValueError("`tape` must be the tf.GradientTape that has recorded `loss`, where `loss` is a tensor.")
    variables = list(var_list() if callable(var_list) else var_list)
    return list(zip(tape.gradient(loss, variables, grad_loss), variables))

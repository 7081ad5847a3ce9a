"""What a wrapped optimizer does with gradients: when they are reduced, and the stages of a reduction in their order.

The order is always: add up the passes (where an update has several), reduce over the ranks, test for infinities, clip,
update. So every rank tests, clips and applies the same numbers.

`apply_reduced` asks once what an update depends on, and passes it on as an `UpdateContext`. `when_reduced` is the only
place that decides when. `reduce_gradients` is the only place that knows what happens to a list of gradients on its way
to the other ranks.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf.gradients import reduced_once
from smddp_tf.gradients.local_sources import KeptGradients, replaced
from smddp_tf.keras.optimizer import same_batches
from smddp_tf.keras.optimizer.accumulation import KerasWindow
from smddp_tf.keras.optimizer.optimizer_reducer import OptimizerReducer
from smddp_tf.keras.roles import active_ranks
from smddp_tf.keras.roles.active_ranks import ActiveRanks
from smddp_tf.keras.roles.optimizers import innermost, iterations_of
from smddp_tf.keras.roles.wrapping import reducer_of
from smddp_tf.keras.sharding.sharded_state import ShardedState


class When(enum.Enum):
    """When the gradients that an optimizer's `apply` gets are reduced over the ranks."""

    EACH_CALL = "In each call, before Keras sees them."
    AFTER_PASSES = "When the passes of `backward_passes_per_step` are added up, before Keras sees the sums."
    AFTER_WINDOW = "When Keras's passes are added up, before the finite check of the `LossScaleOptimizer` around them."
    IN_UPDATE = "Where Keras, which adds up the passes itself, updates the variables: in `_backend_update_step`."


class UpdateContext(NamedTuple):
    """What an update depends on: asked once, when an optimizer gets gradients, and passed on by argument.

    Attributes:
        optimizer: the outermost optimizer that is ours: a `LossScaleOptimizer` where there is one.
        inner: the one inside of it, which updates the weights; `optimizer` itself where there is none.
        wrapped: the outermost of the two that has a wrapped class; programs call its methods, and replace them.
        reducer: of both.
        state: what is cut of the inner optimizer's state; None where each rank has all of it.
        active: which ranks have data in this step; None where all have.
        when: when the gradients are reduced.
        variables: what they are the gradients of; see `of`.
        kept: which of them stay on this rank.
        keras: Keras's part: `keras(grads)` applies them; None where they are reduced only.
    """

    optimizer: Any
    inner: Any
    wrapped: Any
    reducer: OptimizerReducer
    state: ShardedState | None
    active: ActiveRanks | None
    when: When
    variables: Sequence[Any] = ()
    kept: KeptGradients = KeptGradients([], [], set())
    keras: Any = None

    def of(self, variables: Sequence[Any]) -> UpdateContext:
        """The same update, for the gradients of these variables."""
        return self._replace(variables=list(variables), kept=self.reducer.local.kept(variables))

    def reduced(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients of an update, reduced: `reduce_gradients`, unless the user's program has replaced it."""
        hook = self.wrapped._allreduce
        is_ours = getattr(hook, "__func__", None) is _allreduce
        return reduce_gradients(self, grads) if is_ours else list(hook(grads, self.variables))

    def apply(self, reduced: Sequence[Any]) -> Any:
        """Keras's part."""
        with self.reducer.applying(self):
            return self.keras(reduced)

    def apply_pass(self, grads: Sequence[Any]) -> Any:
        """One of several passes of an update."""
        if self.when is When.IN_UPDATE:
            return self.apply(grads)
        if not self.optimizer.built:
            self.optimizer.build(self.variables)  # here, because a branch of a graph cannot create variables
        if self.when is When.AFTER_WINDOW:
            return KerasWindow(self.optimizer).apply(grads, self.variables, self._update, self._accumulate)
        assert self.reducer.passes is not None
        counter = iterations_of(self.inner)
        dense = self.reducer.settings.dense(grads, self.variables)
        return self.reducer.passes.apply(dense, self.variables, self._update, lambda: counter.assign_add(1))

    def _update(self, sums: Sequence[Any]) -> Any:
        return self.apply(self.reduced(sums))

    def _accumulate(self, unscaled: Sequence[Any]) -> None:
        with self.reducer.applying(self):
            self.inner.apply(unscaled, self.variables)


def context_of(optimizer: Any, reducer: OptimizerReducer) -> UpdateContext:
    """Asks what an update of the optimizer depends on. Its gradients are still to come: see `UpdateContext.of`."""
    inner, state, active = innermost(optimizer), reducer.sharded(), active_ranks.current()
    wrapped = optimizer if hasattr(optimizer, "_allreduce") else inner
    when = when_reduced(inner is not optimizer, inner, reducer, state)
    return UpdateContext(optimizer, inner, wrapped, reducer, state, active, when)


def when_reduced(is_scaled: bool, inner: Any, reducer: OptimizerReducer, state: ShardedState | None) -> When:
    """The one answer. `is_scaled` is whether a `LossScaleOptimizer` is around; for the others see `UpdateContext`."""
    if state is None and getattr(inner, "gradient_accumulation_steps", None):
        return When.AFTER_WINDOW if is_scaled else When.IN_UPDATE
    return When.EACH_CALL if reducer.passes is None else When.AFTER_PASSES


def apply_reduced(optimizer: Any, reducer: OptimizerReducer, apply: Callable[..., Any], grads: Any, given: Any) -> Any:
    """Reduces `grads`, once for each update, and lets Keras's `apply` do the rest.

    Args:
        optimizer: see `UpdateContext`.
        reducer: the same.
        apply: `apply(grads, trainable_variables)` of the optimizer's own class.
        grads: gradients or None, as Keras takes them.
        given: the variables, or None for those the optimizer was built with.
    """
    grads = list(grads)
    given = None if given is None else list(given)
    context = reducer.update or context_of(optimizer, reducer)
    state, active = context.state, context.active
    if state is not None and optimizer is context.inner:
        apply = functools.partial(state.apply, optimizer, apply)
    variables = _variables_of(context, grads, given)
    if variables is None or reducer.update is not None:
        return apply(grads, given)  # Keras raises its own error, or the update that is being applied has reduced them
    reducer.is_scaled = optimizer is not context.inner
    context = context.of(variables)._replace(keras=lambda reduced: apply(reduced, given))
    by_tape = reduced_by_tape(context, grads)
    _refuse_norms(context)
    if context.when is When.EACH_CALL:
        # Parts are cut from what is reduced: the mean of equal means.
        reduced = grads if by_tape and state is None else context.reduced(grads)
        if active is None:
            return context.apply(reduced)
        return active_ranks.unless_skipped(active, optimizer, variables, lambda: context.apply(reduced))
    if active is None:
        return context.apply_pass(grads)
    window = reducer.open_window()
    active.agree_on_pass()

    def one_pass() -> Any:
        window.add(active.flag_of_pass())
        return context.apply_pass(active.masked_in_pass(grads, variables))

    return active_ranks.unless_skipped(active, optimizer, variables, one_pass)


def _variables_of(context: UpdateContext, grads: Sequence[Any], given: list[Any] | None) -> list[Any] | None:
    """The variables that belong to `grads`, or None where Keras will do nothing or raise."""
    if given is None:
        trained = context.inner._trainable_variables if context.state is None else context.state.wholes
        given = list(trained) if context.optimizer.built else []
        return given if len(given) == len(grads) else None
    return given if grads else None


def reduced_by_tape(context: UpdateContext, grads: Sequence[Any]) -> bool:
    """Whether `hvd.DistributedGradientTape` has reduced the gradients; an error where that would give other numbers."""
    kept, settings = context.kept.all, context.reducer.settings
    shared = [None if index in kept else grad for index, grad in enumerate(grads)]
    op = settings.op if context.active is None else None
    return reduced_once.by_tape(shared, context.variables, settings.process_set, op)


def _refuse_norms(context: UpdateContext) -> None:
    """Raises a NotImplementedError where an update of cut tables depends on more than single elements of them."""
    if not context.kept.complete:
        return
    optimizer = context.inner
    names = {each.__name__ for each in type(optimizer).__mro__} & {"Adafactor", "Lamb", "Muon"}
    if names or optimizer.clipnorm or optimizer.global_clipnorm:
        raise NotImplementedError(
            "Adafactor, Lamb, Muon, `clipnorm` and `global_clipnorm` would see one rank's part only of tables that are "
            f"cut over ranks. Received: {type(optimizer).__name__} with clipnorm={optimizer.clipnorm}, global_clipnorm="
            f"{optimizer.global_clipnorm}. Use `clipvalue`, another optimizer, or placement='default_device'."
        )


def reduce_gradients(context: UpdateContext, grads: Sequence[Any]) -> list[Any]:
    """Returns the gradients as they are applied: reduced over the ranks, but for those that stay on this rank.

    The stages, in order: choose the shared and the local gradients; let a `LossScaleOptimizer` find the infinities of
    both; note the shared ones for the check that ranks have different batches; zeros for a rank without data; divide
    the local ones as a mean divides; reduce; put all back. The scales of float8 layers, which pass for gradients, go
    through as they are.

    Args:
        grads: tensors, `tf.IndexedSlices` or None: of one step, or the sums of several passes.
    """
    reducer, variables, active, kept = context.reducer, context.variables, context.active, context.kept
    local = (*kept.own, *kept.complete)
    shared = [index for index in range(len(grads)) if index not in kept.all]
    if reducer.is_scaled:
        grads = _marked(grads, kept.all)
    if same_batches.is_watching():
        same_batches.note([grads[index] for index in shared])
    if active is not None and reducer.window is None:  # the passes of a window are masked one by one
        changed = (*shared, *local)
        masked = active.masked([grads[index] for index in changed], [variables[index] for index in changed])
        grads = replaced(grads, changed, masked)
    divided = reducer.local.divided([grads[index] for index in local]) if local else []
    own, complete = divided[: len(kept.own)], divided[len(kept.own) :]
    given = [grads[index] for index in shared], [variables[index] for index in shared]
    hook = context.wrapped._allreduce_grads
    is_ours = getattr(hook, "__func__", None) is _allreduce_grads
    over_ranks = reducer.over_ranks(given[1], context.state) if is_ours else hook
    if active is None:
        reduced = [*over_ranks(*given), *complete]
    else:
        op, process_set = reducer.settings.op, reducer.settings.process_set
        reduced = active.reduced(over_ranks, *given, op, process_set, reducer.window, complete)
    return replaced(grads, (*shared, *kept.complete, *kept.own), (*reduced, *own))


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


def _allreduce(self: Any, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
    """Returns gradients as they are applied: `reduce_gradients`."""
    return reduce_gradients(context_of(self, reducer_of(self)).of(vars), list(grads))


def _allreduce_grads(
    self: Any, grads: Sequence[Any], vars: Sequence[Any], use_generic_names: bool = False
) -> list[Any]:
    """Returns gradients reduced over the ranks. They travel by their positions, so names never matter."""
    del use_generic_names
    reducer = reducer_of(self)
    return list(reducer.over_ranks(vars, reducer.sharded())(list(grads), list(vars)))


def register_local_var(self: Any, var: object) -> None:
    """Keeps the gradients of a variable on this rank. Call it before training, or before `_allreduce` reduces."""
    reducer_of(self).local.add(var)


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


# The methods of Horovod's wrapped optimizers that programs call, and replace on one optimizer object. Whatever applies
# gradients calls `_allreduce`, and that `_allreduce_grads`: a replacement is used everywhere.
METHODS = {
    "_allreduce": _allreduce,
    "_allreduce_grads": _allreduce_grads,
    "_agg_helper": property(lambda self: reducer_of(self).passes),
    "register_local_var": register_local_var,
    "_compute_gradients": own_gradients,  # Keras 2 has its own
}

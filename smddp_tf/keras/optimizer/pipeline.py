"""The stages of the gradients of a wrapped optimizer, in their order.

The order is always: sum the passes (where an update has several), reduce over the ranks, test for infinities, clip,
update. So every rank tests, clips and applies the same values.

`optimizer_reducer.py` decides what an update depends on, and so when it is reduced: the `UpdateContext` passed to these
functions. `reduce_gradients` alone defines the steps from a list of gradients to the reduced list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.collectives.layouts import layout_of
from smddp_tf.collectives.sparse import replaced
from smddp_tf.keras.optimizer import same_batches
from smddp_tf.keras.optimizer.accumulation import in_keras_window
from smddp_tf.keras.optimizer.optimizer_reducer import UpdateContext, When
from smddp_tf.keras.roles import active_ranks
from smddp_tf.keras.roles.optimizers import iterations_of
from smddp_tf.keras.roles.wrapping import reducer_of
from smddp_tf.keras.sharding.sharded_state import REFUSED
from smddp_tf.keras.sharding.shards import FlatPart


def apply_reduced(context: UpdateContext, grads: Sequence[Any]) -> Any:
    """Reduces `grads`, once for each update, and lets Keras apply them.

    Args:
        context: from `OptimizerReducer.update_of` for these gradients.
        grads: tensors, `tf.IndexedSlices` or None.
    """
    optimizer, active, variables = context.optimizer, context.active, context.variables
    if context.when is When.NOT_HERE:
        return context.keras(grads)
    _refuse_norms(context)
    if context.when is When.EACH_CALL:
        # Shards of gradients that a tape has reduced come from a second reduction: the mean of equal means.
        results = grads if context.by_tape and context.state is None else reduced(context, grads)
        if active is None:
            return context.apply(results)
        return active_ranks.unless_skipped(active, optimizer, variables, lambda: context.apply(results))
    if active is None:
        return _apply_pass(context, grads)
    window = context.reducer.window = context.reducer.window or active_ranks.Window()
    active.agree_on_pass()

    def one_pass() -> Any:
        window.add(active.flag_of_pass())
        return _apply_pass(context, active.masked_in_pass(grads, variables))

    return active_ranks.unless_skipped(active, optimizer, variables, one_pass)


def _apply_pass(context: UpdateContext, grads: Sequence[Any]) -> Any:
    """Runs one of several passes of an update."""
    reducer, variables = context.reducer, context.variables
    if context.when is When.IN_UPDATE:
        return context.apply(grads)
    if not context.optimizer.built:
        context.optimizer.build(variables)  # here, because a branch of a graph cannot create variables

    def update(sums: Sequence[Any]) -> Any:
        return context.apply(reduced(context, sums))

    def accumulate(unscaled: Sequence[Any]) -> None:
        with reducer.applying(context):
            reducer.inner.apply(unscaled, variables)

    if context.when is When.AFTER_WINDOW:
        return in_keras_window(context.optimizer, grads, variables, update, accumulate)
    assert reducer.passes is not None
    counter = iterations_of(reducer.inner)
    dense = reducer.settings.dense(grads, variables)
    return reducer.passes.apply(dense, variables, update, lambda: counter.assign_add(1))


def _refuse_norms(context: UpdateContext) -> None:
    """Raises a NotImplementedError where an update of sharded variables is not element-wise."""
    layouts = [layout_of(context.variables[index]) for index in context.kept.complete]
    if not layouts:
        return
    optimizer = context.reducer.inner
    names = {each.__name__ for each in type(optimizer).__mro__} & REFUSED
    norms = (optimizer.clipnorm or optimizer.global_clipnorm) and not all(isinstance(x, FlatPart) for x in layouts)
    if names or norms:
        raise NotImplementedError(
            "Adafactor, Lamb and Muon would see one rank's part only of weights and tables that are partitioned over "
            "ranks, and so would `clipnorm` and `global_clipnorm` of tables of DistributedEmbedding. "
            f"Received: {type(optimizer).__name__} with clipnorm={optimizer.clipnorm}, "
            f"global_clipnorm={optimizer.global_clipnorm}. Use `clipvalue`, another optimizer, or "
            "placement='default_device'."
        )


def reduced(context: UpdateContext, grads: Sequence[Any]) -> list[Any]:
    """Returns the reduced gradients of an update: from `reduce_gradients`, or from what the program uses instead."""
    hook = context.wrapped._allreduce
    is_plain = getattr(hook, "__func__", None) is _allreduce
    return reduce_gradients(context, grads) if is_plain else list(hook(grads, context.variables))


def reduce_gradients(context: UpdateContext, grads: Sequence[Any]) -> list[Any]:
    """Returns the gradients as they are applied: reduced over the ranks, or local to this rank.

    The stages, in order: separate the shared and the local gradients; mark infinities of the local ones in the shared
    ones, for a `LossScaleOptimizer`; sample the shared ones for the check that ranks have different batches; zeros for
    a rank without data; divide the local ones as a mean would; reduce the shared ones; join both in the order of
    `grads`. Scales of float8 layers, which Keras treats as gradients, are returned unchanged.

    Args:
        context: of the update.
        grads: tensors, `tf.IndexedSlices` or None: of one step, or the sums of several passes.
    """
    reducer, variables, active, kept = context.reducer, context.variables, context.active, context.kept
    local = (*kept.local, *kept.complete)
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
    own, complete = divided[: len(kept.local)], divided[len(kept.local) :]
    pairs = [grads[index] for index in shared], [variables[index] for index in shared]
    hook = context.wrapped._allreduce_grads
    is_plain = getattr(hook, "__func__", None) is _allreduce_grads
    assert context.over_ranks is not None
    over_ranks = context.over_ranks if is_plain else hook
    if active is None:
        results = [*over_ranks(*pairs), *complete]
    else:
        op, process_set = reducer.settings.op, reducer.settings.process_set
        results = active.reduced(over_ranks, *pairs, op, process_set, reducer.window, complete)
    by_index = dict(zip((*shared, *kept.complete, *kept.local), (*results, *own)))
    return [by_index.get(index, grad) for index, grad in enumerate(grads)]


def _marked(grads: Sequence[Any], kept: set[int]) -> list[Any]:
    """Sets one shared gradient to NaN where a local one is not finite, so that all ranks skip the step.

    A `LossScaleOptimizer` tests all gradients that its rank has, but the other ranks have no local ones of this rank.

    Args:
        grads: tensors, `tf.IndexedSlices` or None.
        kept: the indices of the local ones.
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
    return reduce_gradients(reducer_of(self).context_of(self).of(vars), list(grads))


def _allreduce_grads(
    self: Any, grads: Sequence[Any], vars: Sequence[Any], use_generic_names: bool = False
) -> list[Any]:
    """Returns gradients reduced over the ranks. They are matched by position, not by name."""
    del use_generic_names
    reducer = reducer_of(self)
    return list(reducer.over_ranks(vars, reducer.sharded())(list(grads), list(vars)))


def register_local_var(self: Any, var: object) -> None:
    """Keeps the gradients of a variable on this rank. Call it before training, or before `_allreduce` reduces."""
    reducer_of(self).local.add(var)


def own_gradients(
    self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: tf.GradientTape | None = None
) -> list[tuple[Any, Any]]:
    """Returns pairs of this rank's own gradients and the variables. They are reduced when they are applied.

    Args:
        loss: a tensor that `tape` has recorded, or a function that returns the loss.
        var_list: list of variables, or a function that returns it.
        grad_loss: factor of the gradients, a tensor of the shape of the loss.
        tape: required if `loss` is a tensor.

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


def by_name(*methods: Callable[..., Any]) -> dict[str, Any]:
    """Functions as members of a class, under their own names."""
    return {method.__name__: method for method in methods}


# The methods of Horovod's wrapped optimizers that programs call, and replace on one optimizer object. Gradients are
# applied by way of `_allreduce`, which calls `_allreduce_grads`, so a replacement is always used.
METHODS = {
    **by_name(_allreduce, _allreduce_grads, register_local_var),
    "_agg_helper": property(lambda self: reducer_of(self).passes),
    "_compute_gradients": own_gradients,  # Keras 2 has its own
}

"""The optimizers of Keras 2 (`tf_keras`, TF_USE_LEGACY_KERAS=1), made to apply gradients reduced over all ranks.

Both families, `tf_keras.optimizers.Optimizer` and `tf_keras.optimizers.legacy.Optimizer`, have a method that
`apply_gradients` calls once for each update, before clipping, to add up the replicas of `tf.distribute`; a
`LossScaleOptimizer` calls the inner optimizer's before it asks whether the gradients are finite. That method is where
we reduce, so `fit` and `apply_gradients` reduce once each. What computes gradients for a program (`compute_gradients`,
`_compute_gradients`, which `minimize` calls, `get_gradients`) returns reduced ones, as Horovod does; `apply_gradients`
of the same variables then reduces nothing, whatever was done to the gradients in between.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.basics import rank, size
from smddp_tf.collectives import graph
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.keras._backend import build_optimizer, keras
from smddp_tf.keras.optimizer.copied import copy_of
from smddp_tf.keras.optimizer.from_config import configuration, notice_from_config
from smddp_tf.keras.optimizer.optimizer_reducer import OptimizerReducer, ids_with_gradients
from smddp_tf.keras.optimizer.pipeline import METHODS, own_gradients, reduced
from smddp_tf.keras.roles import wrapping
from smddp_tf.keras.roles.optimizers import innermost
from smddp_tf.keras.roles.wrapping import reducer_of

_HOOKS = ("aggregate_gradients", "_aggregate_gradients")
_API_NAMES = ("_keras_api_names", "_keras_api_names_v1", "_tf_api_names", "_tf_api_names_v1")


def distribute(optimizer: Any, settings: ReduceOptions, copies: bool) -> Any:
    """Makes a Keras 2 optimizer reduce its gradients, and returns it.

    Args:
        optimizer: `tf_keras.optimizers.Optimizer` or `tf_keras.optimizers.legacy.Optimizer`, or a
            `LossScaleOptimizer` around one.
        settings: how it reduces.
        copies: whether the one that reduces is a copy.

    Raises:
        ValueError: It is neither, or is wrapped already.
        NotImplementedError: Several passes for one update and a loss scale, which go together with Keras 3 only.
    """
    _check(optimizer)
    wrapping.refuse_wrapped(optimizer)
    inner = innermost(optimizer)
    if settings.backward_passes_per_step > 1 and inner is not optimizer:
        raise NotImplementedError(
            "With TF_USE_LEGACY_KERAS=1 a LossScaleOptimizer updates in every call. Received: "
            f"backward_passes_per_step={settings.backward_passes_per_step}. Use Keras 3, or leave one of them out."
        )
    wrapped = copy_of(optimizer) if copies and not wrapping.reduces(optimizer) else optimizer
    _attach(innermost(wrapped), settings)
    return wrapped


def _attach(optimizer: Any, settings: ReduceOptions | None = None, local: Any = None) -> OptimizerReducer:
    reducer = OptimizerReducer(settings or wrapping.settings_of_class(optimizer), optimizer, local)
    reducer.reductions = _reductions()
    notice_from_config(type(optimizer), _attach)
    wrapped = wrapping.wrapped_class(type(optimizer), _members_for, reducer.settings, _attach)
    wrapping.attach_reducer(optimizer, wrapped, reducer)
    return reducer


def _members_for(optimizer_class: Any) -> dict[str, Any]:
    hook = next(name for name in _HOOKS if hasattr(optimizer_class, name))

    def aggregate(self: Any, grads_and_vars: Any) -> list[Any]:
        """The (gradient, variable) pairs with the gradients reduced over all ranks, if they are not yet."""
        grads, variables = _apart(grads_and_vars)
        reducer = reducer_of(self)
        reducer.aggregated = ids_with_gradients(grads, variables)
        if reducer.update is None and not reducer.takes_computed(grads, variables):
            context = reducer.context_of(self).of(variables)
            grads = grads if context.reduced_by_tape(grads) else reduced(context, grads)
        return list(zip(grads, variables))

    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped class; with several passes for one update, in the last of them only."""
        plain = functools.partial(optimizer_class.apply_gradients, self)
        reducer = reducer_of(self)
        grads, variables = _apart(grads_and_vars)
        computed = reducer.takes_computed(grads, variables)
        if not computed and _leaves_out(hook, args, kwargs):
            _check_reduced(reducer, grads, variables)
        if reducer.passes is not None:
            with tf.init_scope():  # a branch of a graph cannot create variables
                build_optimizer(self, variables)

        context = reducer.context_of(self).of(variables)

        def update(values: Sequence[Any]) -> Any:
            with reducer.applying(context) if computed else contextlib.nullcontext():
                return plain(list(zip(values, variables)), *args, **kwargs)

        def skip() -> Any:
            return self.iterations.assign_add(1)

        if reducer.passes is None:
            done = update(grads)
        else:
            done = self.iterations
            if computed:
                reducer.passes.after_collecting(lambda: update(grads), skip)
            else:
                context.reduced_by_tape(grads)
                dense = reducer.settings.dense(grads, variables)
                reducer.passes.apply(dense, variables, update, skip)
        reducer.aggregated, reducer.reductions = frozenset(), _reductions()
        return done

    def computing(name: str) -> Any:
        plain = getattr(optimizer_class, name, own_gradients)

        @functools.wraps(plain)
        def compute(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
            grads, variables = _apart(plain(self, *args, **kwargs))
            return list(zip(_reduced_now(self, grads, variables), variables))

        return compute

    def get_gradients(self: Any, loss: Any, params: Any) -> list[Any]:
        return _reduced_now(self, optimizer_class.get_gradients(self, loss, params), list(params))

    def get_config(self: Any) -> Any:
        return configuration(optimizer_class.get_config(self), reducer_of(self))

    is_new = hook == _HOOKS[0]
    return {
        "__module__": optimizer_class.__module__,
        "get_config": functools.update_wrapper(get_config, optimizer_class.get_config),
        "apply_gradients": functools.update_wrapper(apply_gradients, optimizer_class.apply_gradients),
        **METHODS,
        hook: functools.update_wrapper(aggregate, getattr(optimizer_class, hook)),
        "_compute_gradients": computing("_compute_gradients"),
        # Of the new optimizers, and of the old ones.
        **({"compute_gradients": computing("compute_gradients")} if is_new else {"get_gradients": get_gradients}),
        # Keras writes the public name of its own classes into files; it is an attribute that is not inherited.
        **{name: vars(optimizer_class)[name] for name in _API_NAMES if name in vars(optimizer_class)},
    }


def _reduced_now(optimizer: Any, grads: Sequence[Any], variables: list[Any]) -> list[Any]:
    """Returns reduced gradients, for a method that computes them; of several passes the sum, zeros before the last."""
    reducer = reducer_of(optimizer)
    context = reducer.context_of(optimizer).of(variables)
    by_tape = context.reduced_by_tape(grads)
    if reducer.passes is not None:
        dense = reducer.settings.dense(grads, variables)
        results: list[Any] = reducer.passes.collect(dense, variables, functools.partial(reduced, context))
    else:
        results = list(grads) if by_tape else reduced(context, grads)
    reducer.computed[tf.executing_eagerly()] |= ids_with_gradients(grads, variables)
    return results


def _apart(grads_and_vars: Any) -> tuple[list[Any], list[Any]]:
    pairs = list(grads_and_vars)
    return [grad for grad, _ in pairs], [variable for _, variable in pairs]


def _leaves_out(hook: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Do the arguments of `apply_gradients` ask to reduce nothing? The third, if given, has two meanings."""
    said = [bool(each) == (hook == _HOOKS[0]) for each in args[1:2]]
    said += [bool(kwargs.get("skip_gradients_aggregation")), not kwargs.get("experimental_aggregate_gradients", True)]
    return any(said)


def _reductions() -> tuple[int, int]:
    """How much was put into graphs so far, and how much was reduced."""
    return graph.count(), graph.reductions()


def _check_reduced(reducer: OptimizerReducer, grads: Sequence[Any], variables: Sequence[Any]) -> None:
    """Raises a ValueError where each rank would apply its own gradients: the program has not reduced them either."""
    reduced = _reductions()[tf.executing_eagerly()] > reducer.reductions[tf.executing_eagerly()]
    ids = ids_with_gradients(grads, variables)
    if size() > 1 and reducer.settings.process_set.included() and not reduced and not ids <= reducer.aggregated:
        names = [variable.name for variable in variables if id(variable) in ids]
        raise ValueError(
            "`apply_gradients` of an optimizer that hvd.DistributedOptimizer has wrapped was told to reduce nothing "
            "(experimental_aggregate_gradients=False or skip_gradients_aggregation=True), and nothing has reduced "
            f"these gradients, so each rank would apply its own. Received: gradients of {names[:3]} (this is rank "
            f"{rank()}). Leave that argument out, or take the gradients from `compute_gradients`, `_compute_gradients` "
            "or hvd.DistributedGradientTape."
        )


def _check(optimizer: Any) -> None:
    if isinstance(optimizer, (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer)):
        return
    of_keras_3 = "This is a Keras 3 optimizer: take it from `tf.keras.optimizers`, or unset TF_USE_LEGACY_KERAS."
    what_to_do = wrapping.advice(optimizer, "tf.keras.optimizers", object, keras=of_keras_3)
    raise ValueError(
        "`optimizer` must be a Keras 2 optimizer, an instance of `tf_keras.optimizers.Optimizer` or "
        "`tf_keras.optimizers.legacy.Optimizer`, because TF_USE_LEGACY_KERAS=1 makes `tf.keras` Keras 2 in this "
        f"process. Received: optimizer={optimizer!r} (of type {type(optimizer).__name__}). {what_to_do}"
    )

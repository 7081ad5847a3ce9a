"""The optimizers of Keras 2 (`tf_keras`, TF_USE_LEGACY_KERAS=1), made to apply gradients reduced over all ranks.

Both families, `tf_keras.optimizers.Optimizer` and `tf_keras.optimizers.legacy.Optimizer`, have a method that
`apply_gradients` calls once for each update, before clipping, to add up the replicas of `tf.distribute`; a
`LossScaleOptimizer` calls the inner optimizer's before it asks whether the gradients are finite. That method is where
we reduce, so `fit`, `minimize` and `apply_gradients` reduce once each.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from smddp_tf.keras._backend import build_optimizer, keras
from smddp_tf.keras.optimizer.accumulation import innermost
from smddp_tf.keras.optimizer.made_anew import configuration, notice_from_config
from smddp_tf.keras.optimizer.optimizer_reducer import OptimizerReducer, ReductionSettings
from smddp_tf.keras.optimizer.pipeline import refuse_reduced
from smddp_tf.keras.optimizer.replaceable import methods_for
from smddp_tf.keras.optimizer.wrapping import (
    advice,
    attach_reducer,
    reducer_on,
    refuse_wrapped,
    settings_of_class,
    wrapped_class,
)

_HOOKS = ("aggregate_gradients", "_aggregate_gradients")
_API_NAMES = ("_keras_api_names", "_keras_api_names_v1", "_tf_api_names", "_tf_api_names_v1")


def distribute(optimizer: Any, settings: ReductionSettings) -> Any:
    """Makes a Keras 2 optimizer reduce its gradients; changed in place and returned.

    Args:
        optimizer: `tf_keras.optimizers.Optimizer` or `tf_keras.optimizers.legacy.Optimizer`, or a
            `LossScaleOptimizer` around one.
        settings: how it reduces.

    Raises:
        ValueError: It is neither, or is wrapped already.
        NotImplementedError: Several passes for one update and a loss scale, which go together with Keras 3 only.
    """
    _check(optimizer)
    refuse_wrapped(optimizer)
    inner = innermost(optimizer)
    if settings.backward_passes_per_step > 1 and inner is not optimizer:
        raise NotImplementedError(
            "With TF_USE_LEGACY_KERAS=1 a LossScaleOptimizer updates in every call. Received: "
            f"backward_passes_per_step={settings.backward_passes_per_step}. Use Keras 3, or leave one of them out."
        )
    _attach(inner, settings)
    return optimizer


def _attach(optimizer: Any, settings: ReductionSettings | None = None, local: Any = None) -> OptimizerReducer:
    reducer = OptimizerReducer(settings_of_class(optimizer) if settings is None else settings)
    if local is not None:
        reducer.local.add_those_of(local)
    notice_from_config(type(optimizer), _attach)
    attach_reducer(optimizer, wrapped_class(type(optimizer), _members_for, reducer.settings), reducer)
    return reducer


def _reducer_of(optimizer: Any) -> OptimizerReducer:
    """The optimizer's reducer; one made from a wrapped class gets it here, with the settings of the class."""
    reducer = reducer_on(optimizer)
    return _attach(optimizer) if reducer is None else reducer


def _members_for(optimizer_class: Any) -> dict[str, Any]:
    hook = next(name for name in _HOOKS if hasattr(optimizer_class, name))

    def aggregate(self: Any, grads_and_vars: Any) -> list[Any]:
        """The (gradient, variable) pairs with the gradients reduced over all ranks."""
        grads_and_vars = list(grads_and_vars)
        grads, variables = [grad for grad, _ in grads_and_vars], [variable for _, variable in grads_and_vars]
        reducer = _reducer_of(self)
        refuse_reduced(reducer, grads, variables)
        return list(zip(self._allreduce(grads, variables), variables))

    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped class; with several passes for one update, in the last of them only."""
        plain = functools.partial(optimizer_class.apply_gradients, self)
        reducer = _reducer_of(self)
        if reducer.passes is None:
            return plain(grads_and_vars, *args, **kwargs)
        grads_and_vars = list(grads_and_vars)
        grads, variables = [grad for grad, _ in grads_and_vars], [variable for _, variable in grads_and_vars]
        refuse_reduced(reducer, grads, variables)
        with tf.init_scope():  # a branch of a graph cannot create variables
            build_optimizer(self, variables)
        reducer.passes.apply(
            reducer.dense(grads, variables),
            variables,
            lambda sums: plain(list(zip(sums, variables)), *args, **kwargs),
            lambda: self.iterations.assign_add(1),
        )
        return self.iterations

    def get_config(self: Any) -> Any:
        return configuration(optimizer_class.get_config(self), _reducer_of(self))

    return {
        "__module__": optimizer_class.__module__,
        "get_config": functools.update_wrapper(get_config, optimizer_class.get_config),
        "apply_gradients": functools.update_wrapper(apply_gradients, optimizer_class.apply_gradients),
        **methods_for(optimizer_class, _reducer_of),
        hook: functools.update_wrapper(aggregate, getattr(optimizer_class, hook)),
        # Keras writes the public name of its own classes into files; it is an attribute that is not inherited.
        **{name: vars(optimizer_class)[name] for name in _API_NAMES if name in vars(optimizer_class)},
    }


def _check(optimizer: Any) -> None:
    if isinstance(optimizer, (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer)):
        return
    what_to_do = advice(
        optimizer,
        "tf.keras.optimizers",
        object,
        keras="This is a Keras 3 optimizer: take it from `tf.keras.optimizers`, or unset TF_USE_LEGACY_KERAS.",
    )
    raise ValueError(
        "`optimizer` must be a Keras 2 optimizer, an instance of `tf_keras.optimizers.Optimizer` or "
        "`tf_keras.optimizers.legacy.Optimizer`, because TF_USE_LEGACY_KERAS=1 makes `tf.keras` Keras 2 in this "
        f"process. Received: optimizer={optimizer!r} (of type {type(optimizer).__name__}). {what_to_do}"
    )

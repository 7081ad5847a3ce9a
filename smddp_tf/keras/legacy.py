"""The optimizers of Keras 2 (`tf_keras`, TF_USE_LEGACY_KERAS=1), made to apply gradients reduced over all ranks.

Both families, `tf_keras.optimizers.Optimizer` and `tf_keras.optimizers.legacy.Optimizer`, have a method that
`apply_gradients` calls once for each update, before clipping, to add up the replicas of `tf.distribute`; a
`LossScaleOptimizer` calls the inner optimizer's before it asks whether the gradients are finite. That method is where
we reduce, so `fit`, `minimize` and `apply_gradients` reduce once each.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import tensorflow as tf

from smddp_tf.keras._backend import keras
from smddp_tf.keras.reducing import Reduction, ReductionSettings

_WRAPS = "_smddp_wraps"  # the attribute of a wrapped class that holds the user's class
_REDUCTION = "_smddp_reduction"
_HOOKS = ("aggregate_gradients", "_aggregate_gradients")
_API_NAMES = ("_keras_api_names", "_keras_api_names_v1", "_tf_api_names", "_tf_api_names_v1")
_wrapped_classes: dict[type, type] = {}


def distribute(optimizer: Any, settings: ReductionSettings) -> Any:
    """Makes a Keras 2 optimizer reduce its gradients; changed in place and returned.

    Args:
        optimizer: `tf_keras.optimizers.Optimizer` or `tf_keras.optimizers.legacy.Optimizer`, or a
            `LossScaleOptimizer` around one.
        settings: how it reduces.

    Raises:
        ValueError: It is neither, or is wrapped already.
        NotImplementedError: The settings ask for something that exists with Keras 3 only.
    """
    _check(optimizer)
    passes = settings.backward_passes_per_step
    if passes != 1:
        raise NotImplementedError(
            "With TF_USE_LEGACY_KERAS=1 every call is an update. Received: "
            f"backward_passes_per_step={passes}. Use Keras 3, or add up the gradients in a loop of your own."
        )
    inner = optimizer
    while hasattr(inner, "inner_optimizer"):
        inner = inner.inner_optimizer
    if hasattr(type(inner), _WRAPS):
        raise ValueError(
            "`optimizer` must be an optimizer that is not wrapped yet; this one already reduces its gradients over "
            f"all ranks, and would do it twice. Received: optimizer={optimizer!r} ({type(optimizer).__name__}). "
            "Use it as it is."
        )
    _attach(inner, settings)
    return optimizer


def _attach(optimizer: Any, settings: ReductionSettings) -> Reduction:
    reduction = Reduction(settings)
    # `object.__setattr__` goes past Keras's and TensorFlow's tracking: the reduction is in no saved file.
    object.__setattr__(optimizer, "__class__", _wrap_class(type(optimizer)))
    object.__setattr__(optimizer, _REDUCTION, reduction)
    return reduction


def _reduction_of(optimizer: Any) -> Reduction:
    """The optimizer's reduction; one made from a wrapped class by `from_config` reduces with default settings."""
    reduction = vars(optimizer).get(_REDUCTION)
    return _attach(optimizer, ReductionSettings()) if reduction is None else reduction


def _wrap_class(optimizer_class: type) -> type:
    """The subclass that reduces; it saves under the name of `optimizer_class`."""
    if hasattr(optimizer_class, _WRAPS):
        return optimizer_class
    if optimizer_class not in _wrapped_classes:
        _wrapped_classes[optimizer_class] = _new_class(optimizer_class)
    return _wrapped_classes[optimizer_class]


def _new_class(optimizer_class: Any) -> type:
    hook = next(name for name in _HOOKS if hasattr(optimizer_class, name))

    def aggregate(self, grads_and_vars):
        """The (gradient, variable) pairs with the gradients reduced over all ranks."""
        grads_and_vars = list(grads_and_vars)
        variables = [variable for _, variable in grads_and_vars]
        reduced = _reduction_of(self)([grad for grad, _ in grads_and_vars], variables)
        return list(zip(reduced, variables))

    namespace = {
        "__module__": optimizer_class.__module__,
        "__qualname__": optimizer_class.__qualname__,
        "__doc__": optimizer_class.__doc__,
        _WRAPS: optimizer_class,
        hook: functools.update_wrapper(aggregate, getattr(optimizer_class, hook)),
        # Keras writes the public name of its own classes into files; it is an attribute that is not inherited.
        **{name: vars(optimizer_class)[name] for name in _API_NAMES if name in vars(optimizer_class)},
    }
    bases = (optimizer_class,)
    wrapped = types.new_class(optimizer_class.__name__, bases, exec_body=lambda body: body.update(namespace))
    _register_alias(optimizer_class, wrapped)
    return wrapped


def _register_alias(optimizer_class: type, wrapped: type) -> None:
    """Saves `wrapped` under the registered name of `optimizer_class`, while that name goes on loading the latter."""
    registered = keras.saving.get_registered_name(optimizer_class)
    package, separator, name = registered.partition(">")
    if not separator:
        return
    loadable = keras.saving.get_custom_objects()
    owner = loadable.pop(registered, None)
    keras.saving.register_keras_serializable(package, name)(wrapped)
    del loadable[registered]
    if owner is not None:
        loadable[registered] = owner


def _check(optimizer: Any) -> None:
    if isinstance(optimizer, (keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer)):
        return
    raise ValueError(
        "`optimizer` must be a Keras 2 optimizer, an instance of `tf_keras.optimizers.Optimizer` or "
        "`tf_keras.optimizers.legacy.Optimizer`, because TF_USE_LEGACY_KERAS=1 makes `tf.keras` Keras 2 in this "
        f"process. Received: optimizer={optimizer!r} (of type {type(optimizer).__name__}). {_advice(optimizer)}"
    )


def _advice(optimizer: Any) -> str:
    """What to do instead, for the mistakes scripts make."""
    if isinstance(optimizer, str):
        return f"Use `hvd.DistributedOptimizer(tf.keras.optimizers.get({optimizer!r}))`."
    if isinstance(optimizer, type):
        return f"Pass an instance: `hvd.DistributedOptimizer({optimizer.__name__}(...))`."
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return (
            "TensorFlow 1 optimizers are not supported here: use the class of the same purpose in "
            "`tf.keras.optimizers`, or let this one apply what `hvd.DistributedGradientTape` has reduced."
        )
    if type(optimizer).__module__.split(".")[0] == "keras":
        return "This is a Keras 3 optimizer: take it from `tf.keras.optimizers`, or unset TF_USE_LEGACY_KERAS."
    return "Make one, for example `hvd.DistributedOptimizer(tf.keras.optimizers.Adam())`."

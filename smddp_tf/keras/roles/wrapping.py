"""The classes of wrapped optimizers, of Keras 3 and of Keras 2: how they are made, recognised and saved."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from smddp_tf.collectives.tensor_types import AnyOptimizer
from smddp_tf.keras._backend import keras
from smddp_tf.lifecycle.aliased import is_aliased

_WRAPS = "_smddp_wraps"  # the attribute of a wrapped class that holds the user's class
_SETTINGS = "_smddp_settings"  # ... and the one that holds how optimizers that are made from it reduce
_ATTACH = "_smddp_attach"  # ... and the function that gives such an optimizer its `OptimizerReducer`
_REDUCER = "_smddp_reducer"  # the attribute of a wrapped optimizer that holds its `OptimizerReducer`
_wrapped_classes: weakref.WeakValueDictionary[Any, type] = weakref.WeakValueDictionary()


def wrapped_class(
    optimizer_class: type, members_for: Callable[[Any], dict[str, Any]], settings: Any, attach: Callable[[Any], Any]
) -> Any:
    """Returns a subclass of the user's class, the same at every call; it saves under the name of that class.

    Args:
        optimizer_class: the user's class, or a wrapped one.
        members_for: gives what the subclass of a class overrides, and the `__module__` that files shall name.
        settings: a `ReduceOptions`.
        attach: `attach(optimizer)` gives an optimizer that Keras has made from the subclass its `OptimizerReducer`.
    """
    optimizer_class = unwrapped(optimizer_class)
    # What compresses may be an object of any class, which its class keeps alive: where it has no hash, its identity.
    key = (optimizer_class, *(each if isinstance(each, Hashable) else id(each) for each in settings))
    wrapped = _wrapped_classes.get(key)
    if wrapped is None:
        members = {**members_for(optimizer_class), _WRAPS: optimizer_class, _SETTINGS: settings}
        wrapped = _subclass(optimizer_class, {**members, _ATTACH: staticmethod(attach)})
        _register_alias(optimizer_class, wrapped)
        _wrapped_classes[key] = wrapped
    return wrapped


def settings_of_class(optimizer: AnyOptimizer) -> Any:
    """The settings of a wrapped optimizer's class."""
    return getattr(type(optimizer), _SETTINGS)


def _subclass(base: type, members: dict[str, Any], name: str = "") -> Any:
    """Returns a subclass with one base and no slots: an instance of `base` can be given it as its `__class__`.

    Args:
        base: the class.
        members: what the subclass adds and overrides.
        name: of the subclass. Defaults to that of `base`.
    """
    namespace = {"__qualname__": name or base.__qualname__, "__doc__": base.__doc__, **members}
    return types.new_class(name or base.__name__, (base,), exec_body=lambda body: body.update(namespace))


def _register_alias(optimizer_class: type, wrapped: type) -> None:
    """Saves `wrapped` under the registered name of `optimizer_class`, while that name goes on loading the latter."""
    registered = keras.saving.get_registered_name(optimizer_class)
    package, separator, name = registered.partition(">")
    if not separator:
        return
    loadable = keras.saving.get_custom_objects()
    owner = loadable.pop(registered, None)  # Keras 2 refuses a name that is taken
    keras.saving.register_keras_serializable(package, name)(wrapped)
    del loadable[registered]
    if owner is not None:
        loadable[registered] = owner


def attach_reducer(optimizer: AnyOptimizer, optimizer_class: type, reducer: object) -> None:
    """Gives an optimizer object its wrapped class, which keeps its state, and its `OptimizerReducer`."""
    # Both go past what classes make of `__class__`, and past the tracking by Keras and TensorFlow: the reducer is in no
    # saved file.
    vars(object)["__class__"].__set__(optimizer, named_as_horovod(optimizer_class, "horovod._keras"))
    object.__setattr__(optimizer, _REDUCER, reducer)


def detach_reducer(optimizer: AnyOptimizer) -> None:
    """Undoes `attach_reducer`: the optimizer object has its own class again, and its state."""
    vars(object)["__class__"].__set__(optimizer, unwrapped(type(optimizer)))
    object.__delattr__(optimizer, _REDUCER)


def unwrapped(optimizer_class: type) -> Any:
    """The user's class."""
    return getattr(optimizer_class, _WRAPS, optimizer_class)


def reducer_on(optimizer: AnyOptimizer) -> Any:
    """Returns what `attach_reducer` has put on the optimizer object, or None."""
    return vars(optimizer).get(_REDUCER)


def reducer_of(optimizer: AnyOptimizer) -> Any:
    """Returns a wrapped optimizer's `OptimizerReducer`. One made from a wrapped class gets it here."""
    reducer = reducer_on(optimizer)
    return getattr(type(optimizer), _ATTACH)(optimizer) if reducer is None else reducer


def is_wrapped(optimizer: object) -> bool:
    """True for an optimizer whose class was made by `wrapped_class`."""
    return hasattr(type(optimizer), _WRAPS)


def reduces(optimizer: AnyOptimizer) -> bool:
    """True for a wrapped optimizer, and for a `LossScaleOptimizer` around one."""
    return is_wrapped(optimizer) or is_wrapped(getattr(optimizer, "inner_optimizer", None))


def optimizers_of(model: keras.Model) -> list[Any]:
    """A model's optimizers: the compiled one first, then those in attributes of its own; a GAN has several."""
    candidates = [getattr(model, "optimizer", None)]
    for value in vars(model).values():
        candidates += list(value) if isinstance(value, (list, tuple)) else [value]
        candidates += list(value.values()) if isinstance(value, dict) else []
    return [each for each in candidates if isinstance(each, keras.optimizers.Optimizer)]


def model_reduces(model: keras.Model) -> bool:
    """Does an optimizer of the model reduce gradients over all ranks, so that they must stay in step?"""
    return any(reduces(each) and _concerns_all_ranks(each) for each in optimizers_of(model))


def _concerns_all_ranks(optimizer: AnyOptimizer) -> bool:
    reducer = reducer_on(optimizer)
    return reducer is None or reducer.settings.process_set.process_set_id == 0


def refuse_wrapped(optimizer: AnyOptimizer) -> None:
    """Raises a ValueError for an optimizer that reduces already, unless it only inherited that: it may be replaced."""
    wrapped = filter(is_wrapped, (optimizer, getattr(optimizer, "inner_optimizer", None)))
    if not all(getattr(reducer_on(each), "is_inherited", False) for each in wrapped):
        raise ValueError(
            "`optimizer` must be an optimizer that is not wrapped yet; this one already reduces its gradients over "
            f"all ranks, and would do it twice. Received: optimizer={optimizer!r} ({type(optimizer).__name__}). "
            "Use it as it is."
        )


def advice(optimizer: object, optimizers: str, family: type | tuple[type, ...], **of_package: str) -> str:
    """Returns what to do instead of passing `optimizer`, for the mistakes that scripts make.

    Args:
        optimizers: where scripts find the right ones, such as "keras.optimizers".
        family: the class (or classes) of which the script may have forgotten to make an instance.
        of_package: for objects of another package, by its name.
    """
    if isinstance(optimizer, str):
        return f"Use `hvd.DistributedOptimizer({optimizers}.get({optimizer!r}))`."
    if isinstance(optimizer, type) and issubclass(optimizer, family):
        return f"Pass an instance: `hvd.DistributedOptimizer({optimizer.__name__}(...))`."
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return (
            "TensorFlow 1 optimizers are wrapped by `smddp_tf.DistributedOptimizer`, not by that of smddp_tf.keras. "
            f"Or use the class of the same purpose in `{optimizers}`."
        )
    make_one = f"Make one, for example `hvd.DistributedOptimizer({optimizers}.Adam())`."
    return of_package.get(type(optimizer).__module__.split(".")[0], make_one)


_SHOWN = "_smddp_shown"  # the attribute of a class that holds the one it is shown as


def named_as_horovod(base: type, module: str, name: str | None = None) -> Any:
    """Returns the class that objects of `base` get: under the alias one that names Horovod's module, else itself.

    Programs look at `type(optimizer).__module__`, `optimizer.__module__`, `repr(optimizer)` and `str(optimizer)`. Keras
    writes the module and the name of `optimizer.__class__` into files, which stay what they are without the alias.

    Args:
        base: a class. Its objects' `__class__` stays it.
        module: the module of Horovod.
        name: the name of the class there. Defaults to that of `base`.
    """
    if not is_aliased("horovod"):
        return base
    if _SHOWN not in vars(base):
        members = {"__module__": module, "__class__": property(lambda self: base)}
        setattr(base, _SHOWN, _subclass(base, members, name or base.__name__))
    return getattr(base, _SHOWN)

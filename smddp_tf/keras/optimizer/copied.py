"""A copy of an optimizer, which `hvd.DistributedOptimizer` makes reduce: the given one stays as it is."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from smddp_tf.collectives.tensor_types import AnyOptimizer
from smddp_tf.keras._backend import LEGACY, keras, optimizer_variables
from smddp_tf.keras.roles.optimizers import innermost, iterations_of

# Attributes that are about the object itself: TensorFlow's tracking, and who is around it.
_OF_THE_OBJECT = ("_self_", "_obj_", "_is_wrapped_by_loss_scale_optimizer")
_UNREAD = "_self_unconditional_deferred_dependencies"  # where TensorFlow keeps what a checkpoint has for later
_PLAIN = (bool, bytes, float, int, str, type(None))


def copy_of(optimizer: AnyOptimizer) -> AnyOptimizer:
    """An optimizer of the same class, with variables of its own that have the same values.

    It is made from the configuration. What that lacks is taken from the given object: its state, other hyperparameters
    and attributes. Objects such as learning rate schedules, functions and the user's variables are shared. One that is
    made while a graph is traced has no values yet, and no other code has it: it is returned itself.

    Raises:
        ValueError: A `tf.train.Checkpoint` has values for variables that the optimizer has not made yet.
    """
    _refuse_unread(optimizer)
    with tf.init_scope():
        if not (LEGACY or _has_values(optimizer)):
            return optimizer
        copied = _recreated(optimizer)
        if not LEGACY and optimizer.built:
            copied.build(optimizer._trainable_variables)
        own = _copies(optimizer, copied)
        for name, value in vars(optimizer).items():
            if not name.startswith(_OF_THE_OBJECT) and _is_carried(name, value, copied, own):
                # TensorFlow shall track the containers of Keras 2's optimizers, as in the given one.
                put = setattr if LEGACY and isinstance(value, (dict, list)) else object.__setattr__
                put(copied, name, _replaced(value, own, optimizer, copied))
        if LEGACY:  # what `tf.train.Checkpoint` saves of the optimizers that track their variables one by one
            for name, variable in getattr(optimizer, "_unconditional_checkpoint_dependencies", ()):
                if id(variable) in own:
                    copied._track_trackable(own[id(variable)], name, overwrite=True)
    return copied


def _refuse_unread(optimizer: AnyOptimizer) -> None:
    is_built = any(getattr(optimizer, name, False) for name in ("built", "_built", "_weights"))
    unread = [getattr(each, _UNREAD, None) for each in (optimizer, *vars(optimizer).values())]
    if any(unread) and not is_built:
        raise ValueError(
            "hvd.DistributedOptimizer would lose what tf.train.Checkpoint has read: it has read values for variables "
            "that the optimizer has not made yet, and another optimizer is returned. Received: an optimizer of type "
            f"{type(optimizer).__name__} that is not built. Give the checkpoint the wrapped optimizer."
        )


def _has_values(optimizer: AnyOptimizer) -> bool:
    """Whether values can be read. To be called in `tf.init_scope`.

    Not in a graph of TensorFlow 1, whose variables are symbolic, and not in the trace of the function that has made the
    optimizer: its variables are initialised when the function first runs.
    """
    inner = innermost(optimizer)  # `iterations` of one that accumulates gradients is a quotient
    counter = iterations_of(inner) if inner.gradient_accumulation_steps else optimizer.iterations
    return tf.executing_eagerly() and bool(counter.value.is_initialized())


def _recreated(optimizer: AnyOptimizer) -> AnyOptimizer:
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        config = {name: value for name, value in optimizer.get_config().items() if name != "inner_optimizer"}
        return type(optimizer)(copy_of(inner), **config)
    try:
        return type(optimizer).from_config(optimizer.get_config())
    except Exception:  # a class with other arguments than its configuration has: the class of Keras below it
        is_old = LEGACY and isinstance(optimizer, keras.optimizers.legacy.Optimizer)
        family = keras.optimizers.legacy.Optimizer if is_old else keras.optimizers.Optimizer
        copied: Any = object.__new__(type(optimizer))
        rate: Any = getattr(optimizer, "_learning_rate", None)
        vars(copied).update({**vars(optimizer), "_learning_rate": tf.constant(0.0)})
        config = family.get_config(copied)
        if "learning_rate" in config:
            config["learning_rate"] = rate if callable(rate) else float(tf.convert_to_tensor(rate))
        vars(copied).clear()
        family.__init__(copied, **config)
        for name, value in vars(optimizer).items():
            if name not in vars(copied) and not any(map(_belongs_to_one, _leaves(value))):
                object.__setattr__(copied, name, value)  # `build` may need it
        return copied


def _copies(optimizer: AnyOptimizer, copied: AnyOptimizer) -> dict[int, Any]:
    """The variables that stand for an optimizer's own, by the ids of those."""
    originals, copies = optimizer_variables(optimizer), optimizer_variables(copied)
    own = {id(original): variable for original, variable in zip(originals, copies)}
    for original, variable in zip(originals, copies):
        variable.assign(original)
    if LEGACY:
        hypers = getattr(optimizer, "_hyper", {}).items()
        made = [value for name, value in hypers if _is_variable(value) and _name_of(value) == name]
        own.update({id(each): copy.deepcopy(each) for each in (*originals[len(copies) :], *made)})
    return own


def _is_carried(name: str, value: object, copied: AnyOptimizer, own: dict[int, Any]) -> bool:
    """Whether an attribute is taken over: not where making the copy has made what belongs there."""
    if name not in vars(copied) or (LEGACY and id(value) in own):
        return True
    if isinstance(value, (dict, list, tuple)):
        return LEGACY or not any(map(_is_variable, _leaves(value)))
    return isinstance(value, _PLAIN) or (callable(value) and not isinstance(value, types.MethodType))


def _replaced(value: object, own: dict[int, Any], optimizer: AnyOptimizer, copied: AnyOptimizer) -> Any:
    """The value for the copy: new containers, and the copy's own variables and methods."""
    again: Callable[[Any], Any] = lambda each: _replaced(each, own, optimizer, copied)  # noqa: E731
    if isinstance(value, types.MethodType) and value.__self__ is optimizer:
        return types.MethodType(value.__func__, copied)
    if isinstance(value, dict):
        return {key: again(each) for key, each in value.items()}
    if isinstance(value, list):
        return [again(each) for each in value]
    if type(value) is tuple:
        return tuple(again(each) for each in value)
    return own.get(id(value), value)


def _leaves(value: object) -> Iterator[Any]:
    if isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    else:
        yield value


def _belongs_to_one(value: object) -> bool:
    return _is_variable(value) or isinstance(value, types.MethodType)


def _is_variable(value: object) -> bool:
    # In Keras 3.3 `keras.Variable` is a class of the user's variables alone, and all are of the class below it.
    return isinstance(value, tf.Variable) or (not LEGACY and isinstance(value, keras.Variable.__bases__))


def _name_of(variable: Any) -> str:
    return str(variable.name).split("/")[-1].split(":")[0]

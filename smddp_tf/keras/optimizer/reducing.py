"""The class a wrapped optimizer gets: the user's own class, with gradients reduced before they are applied."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from smddp_tf.collectives.layouts import layout_of
from smddp_tf.gradients.local_sources import LocalSources
from smddp_tf.gradients.options import DEFAULTS, ReduceOptions
from smddp_tf.keras._backend import keras
from smddp_tf.keras.optimizer.from_config import configuration, notice_from_config
from smddp_tf.keras.optimizer.optimizer_reducer import OptimizerReducer, When
from smddp_tf.keras.optimizer.pipeline import METHODS, apply_reduced, by_name, reduced
from smddp_tf.keras.roles import wrapping
from smddp_tf.keras.roles.optimizers import innermost
from smddp_tf.keras.roles.wrapping import reducer_of
from smddp_tf.keras.saving.sharded_variables import shard_of
from smddp_tf.keras.sharding.sharded_state import ShardedState, clipped, layouts_of
from smddp_tf.lifecycle import first_use


def attach(
    optimizer: Any, settings: ReduceOptions | None = None, local: LocalSources | None = None
) -> OptimizerReducer:
    """Makes `optimizer` reduce: changes its class in place, which keeps its state.

    With a `LossScaleOptimizer` the one inside shares the reducer, because clipping and accumulation happen there.

    Args:
        settings: how. Defaults to the settings of the optimizer's class, a wrapped one.
        local: `LocalSources` of another optimizer, whose variables are local to this one too.
    """
    first_use.begin(first_use.REDUCING)
    inner = innermost(optimizer)
    reducer = OptimizerReducer(settings or wrapping.settings_of_class(optimizer), inner, local)
    for each in {id(o): o for o in (optimizer, inner)}.values():
        notice_from_config(type(each), attach)
        wrapping.attach_reducer(each, wrap_class(type(each), reducer.settings), reducer)
    if inner.built and (state := reducer.sharded()) is not None:
        _shard_state(inner, state)
    return reducer


def _shard_state(optimizer: keras.optimizers.Optimizer, state: ShardedState) -> None:
    """Builds an optimizer again, for shards, and gives it its shard of the state that it has."""
    values = optimizer.variables
    own = build_again(optimizer, optimizer._trainable_variables)
    for variable, value in zip(optimizer.variables[own:], values[own:]):
        is_full = layout_of(value) is None  # not so the slots of a sharded table
        variable.assign(shard_of(variable, value.numpy()) if is_full else value)


def build_for_session(optimizer: keras.optimizers.Optimizer) -> None:
    """Builds a built optimizer, an innermost one, for the ranks of the present session; its variables are new ones."""
    reducer = wrapping.reducer_on(optimizer)
    build_again(optimizer, optimizer._trainable_variables if reducer is None else reducer.forget_parts())


def build_again(optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]) -> int:
    """Builds an innermost optimizer for other variables; returns the number of its own, the first ones, that stay."""
    plain = wrapping.unwrapped(type(optimizer)).from_config(optimizer.get_config())
    own, variables = len(plain.variables), list(variables)
    del optimizer._variables[own:]
    optimizer._trainable_variables_indices.clear()
    optimizer.built = False
    optimizer.build(variables)
    return own


def wrap_class(optimizer_class: type, settings: ReduceOptions | None = None) -> Any:
    """Returns the subclass of `optimizer_class` that reduces gradients; it saves under the name of `optimizer_class`.

    A wrapped class is returned as it is, unless `settings` say how to reduce.

    Example:

    >>> model = keras.models.load_model("model.keras")
    >>> model.optimizer.__class__ = wrap_class(type(model.optimizer))

    which is `hvd.DistributedOptimizer(model.optimizer)` with default settings.
    """
    if settings is None and hasattr(optimizer_class, "_smddp_wraps"):
        return optimizer_class
    settings = settings or DEFAULTS
    members_for = _members_for if settings.partition_state is None else _sharded_members_for
    return wrapping.wrapped_class(optimizer_class, members_for, settings, attach)


def _members_for(optimizer_class: Any) -> dict[str, Any]:
    """Overrides the hooks that every Keras 3 has. `fit`, `apply_gradients` and loops all end in `apply`.

    Reducing there, before the wrapped class sees the gradients, makes clipping, weight decay, EMA and the finite check
    of a `LossScaleOptimizer` work on the same numbers on every rank.

    An optimizer with `gradient_accumulation_steps` is left to accumulate on each rank and reduces where Keras updates.
    Keras 3.3 clips every pass, later ones clip the mean of the passes; here clipping waits for the reduction.
    """

    def apply(self: Any, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        grads, plain = list(grads), functools.partial(optimizer_class.apply, self)
        apply_reduced(reducer_of(self).update_of(self, plain, grads, trainable_variables), grads)

    def _clip_gradients(self: Any, grads: Sequence[Any]) -> Any:
        if self.gradient_accumulation_steps:
            return grads
        update = reducer_of(self).update if self.clipnorm or self.global_clipnorm else None
        return clip(self, grads, () if update is None else update.clipped)

    def clip(self: Any, grads: Sequence[Any], layouts: Sequence[Any]) -> Any:
        plain = functools.partial(optimizer_class._clip_gradients, self)
        return clipped(self, grads, plain, layouts, reducer_of(self).name) if any(layouts) else plain(grads)

    def _backend_update_step(self: Any, grads: Sequence[Any], trainable_variables: Any, learning_rate: Any) -> None:
        if self.gradient_accumulation_steps:
            update = reducer_of(self).update
            if update is not None and update.when is When.IN_UPDATE:
                grads = reduced(update.of(trainable_variables), grads)
            grads = clip(self, grads, layouts_of(grads, trainable_variables))
        optimizer_class._backend_update_step(self, grads, trainable_variables, learning_rate)

    def get_config(self: Any) -> Any:
        return configuration(optimizer_class.get_config(self), reducer_of(self))

    def __reduce__(self: Any) -> Any:
        # Keras pickles an optimizer as a saved file plus a method of its class. Our class cannot be imported by name,
        # the wrapped one can.
        rebuild, arguments = optimizer_class.__reduce__(self)
        return _unpickle, (optimizer_class, rebuild.__name__, arguments, reducer_of(self).settings)

    def __deepcopy__(self: Any, memo: Any = None) -> Any:
        rebuild, arguments = __reduce__(self)
        return rebuild(*arguments, reducer_of(self).local)

    return {
        "__module__": _module_in_saved_files(optimizer_class),
        "apply": functools.update_wrapper(apply, optimizer_class.apply),
        "get_config": functools.update_wrapper(get_config, optimizer_class.get_config),
        "__copy__": __deepcopy__,
        **by_name(_clip_gradients, _backend_update_step, __reduce__, __deepcopy__),
        **METHODS,
    }


def _sharded_members_for(optimizer_class: Any) -> dict[str, Any]:
    """Returns the members for `partition_state`, with which state is built, clipped and averaged in shards."""
    members = _members_for(optimizer_class)

    def build(self: Any, variables: Any) -> None:
        state = None if self.built else _sharded(self)
        if state is None:
            optimizer_class.build(self, variables)
            return
        before = len(self.variables)
        optimizer_class.build(self, state.parts_for(variables, reducer_of(self).local))
        state.check_slots(self, before)

    def _clip_gradients(self: Any, grads: Sequence[Any]) -> Any:
        if (state := _sharded(self)) is not None:
            plain = functools.partial(optimizer_class._clip_gradients, self)
            return clipped(self, grads, plain, state.clipped_layouts, reducer_of(self).name)
        return members["_clip_gradients"](self, grads)

    def _use_weight_decay(self: Any, variable: keras.Variable) -> Any:
        state = _sharded(self)
        return optimizer_class._use_weight_decay(self, variable if state is None else state.variable_of(variable))

    def _overwrite_model_variables_with_average_value(self: Any, trainable_variables: Any) -> None:
        state = _sharded(self)
        variables = trainable_variables if state is None else state.parts
        optimizer_class._overwrite_model_variables_with_average_value(self, variables)
        if state is not None:
            state.gather(variables)

    def _backend_update_step(self: Any, grads: Sequence[Any], trainable_variables: Any, learning_rate: Any) -> None:
        if (state := _sharded(self)) is None:
            members["_backend_update_step"](self, grads, trainable_variables, learning_rate)
            return
        optimizer_class._backend_update_step(self, grads, trainable_variables, learning_rate)
        state.gather(trainable_variables)

    def _trackable_children(self: Any, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        if save_type == "checkpoint" and _sharded(self) is not None:
            raise NotImplementedError(
                "tf.train.Checkpoint would keep this rank's part only of an optimizer's state that is partitioned over "
                "the ranks (partition_state=...). Save by model.save, model.save_weights or "
                "hvd.elastic.TensorFlowKerasState."
            )
        return optimizer_class._trackable_children(self, save_type, **kwargs)

    averages = _overwrite_model_variables_with_average_value
    return {
        **members,
        "build": functools.update_wrapper(build, optimizer_class.build),
        **by_name(_clip_gradients, _use_weight_decay, averages, _backend_update_step, _trackable_children),
    }


def _sharded(optimizer: keras.optimizers.Optimizer) -> ShardedState | None:
    """Returns the sharded state of an optimizer. A `LossScaleOptimizer` has none; the one inside has it."""
    reducer = reducer_of(optimizer)
    return reducer.sharded() if reducer.inner is optimizer else None


def _module_in_saved_files(optimizer_class: type) -> str:
    """Keras looks its own classes up as `keras.optimizers.<name>`, and all other classes in their module."""
    is_built_in = getattr(keras.optimizers, optimizer_class.__name__, None) is optimizer_class
    return "keras.optimizers" if is_built_in else optimizer_class.__module__


def _unpickle(
    optimizer_class: Any, rebuild: str, arguments: Any, settings: ReduceOptions, local: LocalSources | None = None
) -> Any:
    optimizer = getattr(optimizer_class, rebuild)(*arguments)
    attach(optimizer, settings, local)
    return optimizer

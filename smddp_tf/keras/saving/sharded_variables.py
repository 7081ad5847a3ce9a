"""Saves variables that are sharded over the ranks in full, so that any number of ranks can load them.

All ranks save together. Rank 0 writes, and requests the shards of one variable after the other; the others send them,
one by one, until rank 0 is done. So rank 0 holds one full table and one shard of another rank at a time.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import cancellation

from smddp_tf.basics import is_initialized, rank, size
from smddp_tf.collectives import ops
from smddp_tf.collectives.layouts import identity, layout_of, mark
from smddp_tf.collectives.objects import broadcast_object
from smddp_tf.collectives.tensor_types import AnyOptimizer, AnyVariable
from smddp_tf.exceptions import reason_of
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import LEGACY, keras
from smddp_tf.keras.roles import running
from smddp_tf.keras.roles.optimizers import innermost
from smddp_tf.keras.roles.wrapping import optimizers_of, reducer_on
from smddp_tf.lifecycle.slow import calls_after

# Seconds that a rank that saves waits for the others to save too.
WAIT_SECONDS = 300.0
_CHUNK = 1 << 26  # elements that are sent at once
_NAME = "saving a model with partitioned variables"


def sharded_variables(model: keras.Model, optimizers: Iterable[AnyOptimizer] = ()) -> list[Any]:
    """Returns the sharded variables of a model and its optimizers, in the same order on all ranks."""
    if LEGACY:
        return []
    variables = list(model.variables)
    for optimizer in (getattr(model, "optimizer", None), *optimizers):
        variables += getattr(optimizer, "variables", ())
    return list({id(each): each for each in variables if layout_of(each) is not None}.values())


def saves_together(model: keras.Model, optimizers: Iterable[AnyOptimizer] = ()) -> bool:
    """Returns whether all ranks save together: with `partition_state` or `DistributedEmbedding`, sharded or not."""
    return not LEGACY and is_initialized() and size() > 1 and divides(model, optimizers)


def divides(model: keras.Model, optimizers: Iterable[AnyOptimizer] = ()) -> bool:
    """Returns whether variables are partitioned, or would be with more ranks; the same on all ranks."""
    reducers = [reducer_on(innermost(each)) for each in (*optimizers_of(model), *optimizers)]
    return (
        any(reducer is not None and reducer.settings.partition_state is not None for reducer in reducers)
        or any(getattr(layer, "saves_together", False) for layer in model._flatten_layers())
        or bool(sharded_variables(model, optimizers))
    )


def refuse_sharded_variables(model: keras.Model, what: str) -> None:
    """Raises NotImplementedError where `model` or its optimizer has, or will have, sharded variables."""
    for found in [*(variable.path for variable in sharded_variables(model)), *_sharded(model)]:
        raise NotImplementedError(
            f"{what} would keep rank 0's part only of variables that are partitioned over the ranks. Received: a model "
            f"with such a variable ({found}). Save by hvd.callbacks.on_rank_zero(keras.callbacks."
            "ModelCheckpoint(...)) and load by hvd.load_model."
        )


def _sharded(model: keras.Model) -> list[str]:
    """Names `partition_state` for each optimizer whose state is sharded, or will be when it is built."""
    reducers = [reducer_on(innermost(each)) for each in optimizers_of(model)]
    sharded = [each for each in reducers if each is not None and each.sharded()]
    return [f"partition_state={each.settings.partition_state!r}" for each in sharded]


def together(model: keras.Model, save: Callable[[], Any]) -> Any:
    """Returns `save()` on rank 0, while the other ranks send it the shards it needs. Every rank must call it.

    Raises:
        RuntimeError: not all ranks have called it within `WAIT_SECONDS`, or rank 0 could not save.
        ValueError: the ranks' models or optimizers differ.
    """
    if running.here.saved_variables is not None or not saves_together(model):
        return save() if not is_initialized() or rank() == 0 else None
    variables = sharded_variables(model)
    _wait_for_ranks(len(variables))

    def save_here(full: Callable[[int], Any]) -> Any:
        full_of = {id(each): functools.partial(full, number) for number, each in enumerate(variables)}
        with running.within(saved_variables=full_of):
            return save()

    return with_full_values([(identity(each), layout_of(each)) for each in variables], save_here, _NAME)


def with_full_values(parts: Sequence[tuple[Any, Any]], save: Callable[[Callable[[int], Any]], Any], name: str) -> Any:
    """Returns `save(full)` on rank 0, where `full(number)` is a full value; the other ranks send what it asks for.

    Args:
        parts: this rank's parts and their layouts: the same list on all ranks, which all call this.
        save: for rank 0.
        name: of the collectives; no two calls at a time have the same.

    Raises:
        RuntimeError: on the other ranks, where rank 0 could not save.
    """
    if rank() != 0:
        return _serve(parts, name)
    problem = "it was interrupted"

    def full(number: int) -> Any:
        broadcast_object((number, ""), 0, name=name)
        return _gathered(*parts[number], name)

    try:
        result = save(full)
        problem = ""
        return result
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise
    finally:
        broadcast_object((None, problem), 0, name=name)


def full_value(variable: AnyVariable) -> Any:
    """Returns the full table of which `variable` is a shard, as a NumPy array; for other variables their value.

    Raises:
        RuntimeError: outside of `together`.
    """
    layout, variables = layout_of(variable), running.here.saved_variables
    if layout is None:
        return variable.numpy()
    if getattr(layout, "parts", 0) == 1:  # a weight, in a job that other ranks may join
        return np.reshape(identity(variable).numpy(), layout.full_shape)
    if variables is None:
        raise RuntimeError(
            f"{variable.path} is partitioned over {size()} ranks, which must save it together: call `model.save` or "
            f"`model.save_weights` on every rank. Received: another way to save, on rank {rank()}."
        )
    return variables[id(variable)]()


def shard_of(variable: AnyVariable, table: Any) -> Any:
    """Returns this rank's shard of a full table, an array or a dataset of h5py; for other variables all of it."""
    layout = layout_of(variable)
    if layout is None:
        return table
    if tuple(table.shape) != layout.full_shape:
        raise ValueError(
            f"{variable.path}: expected a value of shape {layout.full_shape}. Received: {tuple(table.shape)}."
        )
    return layout.shard(table, rank())


def _serve(parts: Sequence[tuple[Any, Any]], name: str) -> None:
    while True:
        request: tuple[int | None, str] = broadcast_object(None, 0, name=name)
        number, problem = request
        if number is None:
            break
        _gathered(*parts[number], name)
    if problem:
        raise RuntimeError(f"Rank 0 could not save the model: {problem}")


def _gathered(part: Any, layout: Any, name: str) -> Any:
    """Returns the full value on rank 0, None elsewhere."""
    shard = tf.reshape(layout.flat(tf.convert_to_tensor(part), rank()), [-1])
    table = np.empty(layout.full_shape, shard.dtype.as_numpy_dtype) if rank() == 0 else None
    for other in range(size()):
        chunks = [shard.numpy()] if rank() == other == 0 else []
        for begin in range(0, layout.count(other) if other else 0, _CHUNK):
            chunk = shard[begin : begin + _CHUNK] if rank() == other else shard[:0]
            to_rank_0 = [int(tf.size(chunk))] + [0] * (size() - 1)
            chunks.append(ops.alltoall(chunk, to_rank_0, name=f"{name} (part)")[0].numpy())
        if table is not None and chunks:
            layout.put(table, other, np.concatenate(chunks))
    return table


def _wait_for_ranks(count: int) -> None:
    """Waits until all ranks save a model with `count` sharded variables, for at most `WAIT_SECONDS`."""
    manager = cancellation.CancellationManager()
    try:
        with calls_after(WAIT_SECONDS, manager.start_cancel), cancellation.CancellationManagerContext(manager):
            counts = _counts(tf.constant([count])).numpy().tolist()
    except tf.errors.OpError as error:
        if reason_of(error) != "step_given_up" and not isinstance(error, tf.errors.CancelledError):
            raise  # TensorFlow cancels after any error
        raise RuntimeError(
            f"Rank {rank()} saves a model whose variables are partitioned over the ranks, and not all others have come "
            f"to save it within {WAIT_SECONDS:g} s of one another. Every rank must call `model.save` or "
            "`model.save_weights`: take it out of `if hvd.rank() == 0`, and wrap ModelCheckpoint by "
            "hvd.callbacks.on_rank_zero on every rank."
        ) from error
    if len(set(counts)) > 1:
        raise ValueError(
            "All ranks must save the same model, built with its optimizer. "
            f"Received: {counts} variables that are parts of tables, by rank."
        )


@tf.function
def _counts(count: tf.Tensor) -> tf.Tensor:
    return ops.allgather(count, name=f"{_NAME} (do all ranks save)")


def save_full_variables() -> None:
    """Lets Keras save and load sharded variables: files contain them in full, and only rank 0 writes files."""
    for patch in (patch_table.SAVE, patch_table.SAVE_WEIGHTS, patch_table.SAVE_MODEL):
        patches.wrap(patch, _save)
    patches.wrap(patch_table.EXPORT, _export)
    patches.wrap(patch_table.SWAP_EMA, _set_model)
    for patch in (patch_table.SAVE_SLOTS, patch_table.SAVE_LAYER):
        patches.wrap(patch, _save_own_variables)
    for patch in (patch_table.LOAD_SLOTS, patch_table.LOAD_LAYER):
        patches.wrap(patch, _load_own_variables)
    patches.wrap(patch_table.ADD_SLOT, _add_variable_from_reference)
    patches.wrap(patch_table.ADD_ACCUMULATORS, _build)


def _save(plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    model, filepath = list(inspect.signature(plain).bind(*args, **kwargs).arguments.values())[:2]
    is_sharded = isinstance(model, keras.Model) and bool(sharded_variables(model))
    if not isinstance(model, keras.Model) or not saves_together(model) or (running.here.is_alone and not is_sharded):
        return plain(*args, **kwargs)
    if is_sharded and not str(filepath).endswith((".keras", ".weights.h5")):
        raise ValueError(
            "Partitioned variables (DistributedEmbedding, partition_state) are saved to files ending in .keras "
            f"or .weights.h5. Received: filepath={filepath!r}."
        )
    return together(model, lambda: plain(*args, **kwargs))


def _export(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    if any(layout_of(variable) is not None for variable in self.variables):
        raise NotImplementedError(
            "model.export would keep this rank's part only of tables that are partitioned over the ranks. Save the "
            f"model, and export it in one process that has loaded it. Received: a call on rank {rank()}."
        )
    if not saves_together(self) or running.here.is_alone:
        return plain(self, *args, **kwargs)
    return together(self, lambda: plain(self, *args, **kwargs))


def _own_variables(self: Any) -> list[Any]:
    """The variables of an optimizer or a layer, in the order of its saved file."""
    is_layer = isinstance(self, keras.Layer)
    return [*self._trainable_variables, *self._non_trainable_variables] if is_layer else list(self.variables)


def _save_own_variables(plain: Callable[..., None], self: Any, store: Any) -> None:
    variables = _own_variables(self)
    own: Any = {} if any(map(layout_of, variables)) else store
    plain(self, own)
    if own is not store:
        for key, value in own.items():
            variable = variables[int(key)]
            store[key] = value if layout_of(variable) is None else full_value(variable)


def _load_own_variables(plain: Callable[..., None], self: Any, store: Any) -> None:
    variables, keys = _own_variables(self), list(store.keys())
    if any(map(layout_of, variables)) and len(keys) == len(variables):
        store = {key: shard_of(variables[int(key)], store[key]) for key in keys}
    plain(self, store)


def _add_variable_from_reference(
    plain: Callable[..., Any], self: Any, reference_variable: AnyVariable, *args: Any, **kwargs: Any
) -> Any:
    slot = plain(self, reference_variable, *args, **kwargs)
    _mark_like(slot, reference_variable)
    return slot


def _build(plain: Callable[..., None], self: Any, var_list: Sequence[AnyVariable]) -> None:
    plain(self, var_list)
    for variable, slot in zip(var_list, self._accumulators):
        _mark_like(slot, variable)


def _mark_like(slot: AnyVariable, variable: AnyVariable) -> None:
    if (layout := layout_of(variable)) is not None:
        mark(slot, layout)


def _set_model(plain: Callable[..., None], self: Any, model: keras.Model) -> None:
    for shard in _sharded(model):
        raise NotImplementedError(
            "SwapEMAWeights would exchange this rank's parts of moving averages, and weights would stay as they "
            f"are. Received: an optimizer with {shard}. Leave `partition_state` or the callback out."
        )
    plain(self, model)

"""States of layers that no gradient trains, such as the statistics of `BatchNormalization`, under a distribution.

Each rank's steps change them by the rank's own rows. Evaluation, prediction and saving use rank 0's states: the mean
over ranks would be a little more accurate for moving averages, but has no meaning for counters and other states of
user-defined layers, and a checkpoint that is saved within an epoch would contain other values.
"""

from __future__ import annotations

import weakref
from typing import Any

from smddp_tf import basics
from smddp_tf.collectives import functions, layouts
from smddp_tf.keras._backend import keras
from smddp_tf.keras.roles.current_distribution import current, shards_batches
from smddp_tf.keras.roles.optimizers import iterations_of, stays_local
from smddp_tf.keras.roles.wrapping import optimizers_of, reduces

_updates_at_agreement: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()


def agree_on_states(model: keras.Model, if_trained: bool = False) -> None:
    """Under a distribution, broadcasts rank 0's states of the layers of `model`. All ranks must call it.

    Nothing is sent where there are no such states, or where all ranks have made the same changes to them.

    Args:
        model: the same on all ranks.
        if_trained: whether to send only if the model's optimizers have made updates since the last call.
    """
    if current() is None or not (states := _states(model)):
        return
    updates = [int(iterations_of(optimizer).numpy()) for optimizer in optimizers_of(model) if reduces(optimizer)]
    if not if_trained or updates != _updates_at_agreement.get(model, []):
        functions.broadcast_variables(states, root_rank=0)
        _updates_at_agreement[model] = updates


def _states(model: keras.Model) -> list[Any]:
    """The states to broadcast: without those of seed generators, which are equal on all ranks, and frozen weights."""
    states = [variable for layer in model._flatten_layers() for variable in layer._non_trainable_variables]
    states += filter(stays_local, model.trainable_variables)
    by_id = {id(variable): variable for variable in states if layouts.layout_of(variable) is None}
    return [variable for variable in by_id.values() if not getattr(variable, "smddp_agreed", False)]


def stateful_layer(model: keras.Model) -> Any:
    """Returns the first recurrent layer with `stateful=True`, at any depth, or None."""
    layers = (layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.RNN))
    return next((layer for layer in layers if layer.stateful), None)


def refuse_stateful(model: keras.Model) -> None:
    """Refuses a stateful layer under a distribution that divides batches among the ranks.

    Raises:
        ValueError: the model has such a layer.
    """
    layer = stateful_layer(model) if current() is not None and shards_batches() else None
    if layer is not None:
        rows = next((state.shape[0] for state in keras.tree.flatten(layer.states or ())), "all")
        raise ValueError(
            "keras.distribution.DataParallel gives a rank some rows of a batch, but a layer with stateful=True keeps "
            f"a state for each row. Received: {layer.name!r}, whose state is for {rows} rows of a batch, on "
            f"{basics.size()} ranks (this is rank {basics.rank()}). Use stateful=False; or give each rank sequences of "
            "its own and `batch_shape` the rows of one rank, with DataParallel(auto_shard_dataset=False)."
        )

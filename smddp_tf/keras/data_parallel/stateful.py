"""Layers that keep a state for each row of a batch from step to step, of which a rank has some rows only."""

from __future__ import annotations

from typing import Any

from smddp_tf import basics
from smddp_tf.keras._backend import keras
from smddp_tf.keras.data_parallel.current import current


def stateful_layer(model: Any) -> Any:
    """The first recurrent layer with `stateful=True`, at any depth; or None."""
    layers = (layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.RNN))
    return next((layer for layer in layers if layer.stateful), None)


def refuse_stateful(model: Any) -> None:
    """Raises a ValueError where a distribution would give the ranks parts of batches, and a layer is stateful."""
    distribution = current()
    if distribution is None or not getattr(distribution, "_auto_shard_dataset", True):
        return
    layer = stateful_layer(model)
    if layer is not None:
        rows = next((state.shape[0] for state in keras.tree.flatten(layer.states or ())), "all")
        raise ValueError(
            "keras.distribution.DataParallel gives a rank some rows of a batch, but a layer with stateful=True keeps "
            f"a state for each row. Received: {layer.name!r}, whose state is for {rows} rows of a batch, on "
            f"{basics.size()} ranks (this is rank {basics.rank()}). Use stateful=False; or give each rank sequences of "
            "its own and `batch_shape` the rows of one rank, with DataParallel(auto_shard_dataset=False)."
        )

"""State of preprocessing layers from `adapt` that is in no variable of the model: vocabularies, boundaries."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import numpy as np

from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank
from smddp_tf.collectives import objects, rank_facts
from smddp_tf.keras._backend import keras
from smddp_tf.keras.roles.step_hooks import trace_again

_NAME = "BroadcastGlobalVariablesCallback (adapted layers)"


def share_adapted(model: keras.Model, root_rank: int) -> None:
    """Gives all ranks the state of the adapted layers of `model` on one rank. All ranks must call it.

    Call it when the variables are equal: `Normalization` computes with what it has made of them.

    Raises:
        ValueError: on every rank, if the layers of one cannot take the state.
    """
    layers = [layer for layer in model._flatten_layers() if _is_adapted(layer)]
    if not layers:
        return
    before = [_state_of(layer) for layer in layers]
    for layer in layers:
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()
    states = [_state_of(layer) for layer in layers]
    if states != before:
        trace_again(model)
    digest = hashlib.blake2b(pickle.dumps(states, protocol=4), digest_size=16).digest()
    if len(set(rank_facts.objects_of_ranks(digest, f"{_NAME} (are they equal)"))) == 1:
        return
    theirs = objects.broadcast_object(states if rank() == root_rank else None, root_rank, name=of_thread(_NAME))
    errors = rank_facts.objects_of_ranks(_taken_over(layers, states, theirs), f"{_NAME} (errors)")
    for other, error in enumerate(errors):
        if error is not None:
            raise ValueError(
                f"An adapted layer cannot take the state that it has on rank {root_rank}. Received: {error} (on rank "
                f"{other}). Adapt layers on the same data on all ranks, before the model is made."
            )
    trace_again(model)


def _is_adapted(layer: keras.layers.Layer) -> bool:
    has_vocabulary = hasattr(layer, "lookup_table") and hasattr(layer, "set_vocabulary")
    return has_vocabulary or isinstance(layer, (keras.layers.Normalization, keras.layers.Discretization))


def _state_of(layer: keras.layers.Layer) -> Any:
    """Of plain values, the same ones wherever layers are equal."""
    if isinstance(layer, keras.layers.Normalization):
        moments = (getattr(layer, "mean", None), getattr(layer, "variance", None))
        return [None if each is None else np.asarray(each).tolist() for each in moments]
    if isinstance(layer, keras.layers.Discretization):
        boundaries = layer.bin_boundaries
        return None if boundaries is None else np.asarray(boundaries).tolist()
    tokens = layer.get_vocabulary(include_special_tokens=False)
    vocabulary = [token.item() if isinstance(token, np.generic) else token for token in tokens]
    weights = getattr(layer, "idf_weights_const", None)
    first = layer._token_start_index()
    return vocabulary, None if weights is None else np.asarray(weights)[first:][: len(vocabulary)].tolist()


def _taken_over(layers: list[Any], mine: list[Any], theirs: list[Any]) -> str | None:
    """Returns what went wrong."""
    try:
        for layer, own, state in zip(layers, mine, theirs):
            if own == state or isinstance(layer, keras.layers.Normalization):
                continue
            if isinstance(layer, keras.layers.Discretization):
                layer.bin_boundaries = state
            else:
                layer.set_vocabulary(*(state if state[1] is not None else state[:1]))
    except Exception as error:  # whatever it is, all ranks must hear of it
        return f"{layer.name}: {type(error).__name__}: {error}"
    return None

"""Values of which every rank has a part: gathered to whole ones on all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from smddp_tf._native import emit, graph
from smddp_tf._native.threads import of_thread


def gathered_parts(parts: Sequence[Any], layouts: Sequence[Any], key: str) -> list[Any]:
    """Returns the whole values. All ranks must call it with the same list.

    Args:
        parts: tensors of rank 1, this rank's parts.
        layouts: of each; see `smddp_tf.keras.sharding.flat_part.FlatPart`.
        key: the name of the optimizer, the same on all ranks.
    """
    if not parts:
        return []
    name = graph.unique_name(of_thread(f"{key} (weights)"), "#")
    padded = [tf.pad(part, [[0, layout.length - part.shape[0]]]) for part, layout in zip(parts, layouts)]
    return [_joined(rows, layout) for rows, layout in zip(emit.allgather_list(padded, name), layouts)]


def _joined(rows: Any, layout: Any) -> Any:
    """From the parts of all ranks, one after another."""
    order = [layout.places.index(place) for place in range(layout.parts)]
    parts = tf.reshape(rows, [len(layout.places), layout.length])
    if order != list(range(len(layout.places))):
        parts = tf.gather(parts, order)
    elements = 1
    for extent in layout.whole:
        elements *= extent
    return tf.reshape(tf.reshape(parts, [-1])[:elements], layout.whole)

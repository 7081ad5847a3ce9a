"""Values of which every rank has a part: gathered to whole ones on all ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from smddp_tf._native import emit, graph, loader, xla
from smddp_tf._native.threads import of_thread
from smddp_tf.reduce_op import Sum


def gathered_parts(parts: Sequence[Any], layouts: Sequence[Any], key: str, may_plan: bool) -> list[Any]:
    """Returns the whole values. All ranks must call it with the same list.

    In plain graphs each value is gathered as soon as its parts are there, by a plan; elsewhere all together.

    Args:
        parts: tensors of rank 1, this rank's parts.
        layouts: of each; see `smddp_tf.keras.sharding.flat_part.FlatPart`.
        key: the name of the optimizer, the same on all ranks.
        may_plan: bool, whether the nodes have equal numbers of ranks.
    """
    if not parts:
        return []
    name = graph.unique_name(of_thread(f"{key} (weights)"), "#")
    padded = [_padded(part, layout) for part, layout in zip(parts, layouts)]
    plannable = all(emit.is_plannable(part) for part in padded)
    if may_plan and plannable and not (tf.executing_eagerly() or xla.compiling() or graph.is_for_session()):
        return _planned(padded, layouts, name)
    return [_joined(rows, layout) for rows, layout in zip(emit.allgather_list(padded, name), layouts)]


def _planned(parts: Sequence[Any], layouts: Sequence[Any], name: str) -> list[Any]:
    degree, dtypes = layouts[0].parts, [part.dtype.name for part in parts]
    shapes = [list(layout.whole) for layout in layouts]
    arithmetic: Any = (int(Sum), 1.0, 1.0, "", [], 0, [], "gather_parts", degree)
    plan = loader.core().register_plan(name, dtypes, shapes, *arithmetic)
    return [
        emit.gather_part(part, plan, index, shape, name, f"{name}.{index}", degree)
        for index, (part, shape) in enumerate(zip(parts, shapes))
    ]


def _padded(part: Any, layout: Any) -> Any:
    missing = layout.length - part.shape[0]
    return tf.pad(part, [[0, missing]]) if missing else part


def _joined(rows: Any, layout: Any) -> Any:
    """From the parts of all ranks, one after another."""
    order = [layout.places.index(place) for place in range(layout.parts)]
    parts = tf.reshape(rows, [len(layout.places), layout.length])
    if order != list(range(len(layout.places))):
        parts = tf.gather(parts, order)
    return tf.reshape(tf.reshape(parts, [-1])[: math.prod(layout.whole)], layout.whole)

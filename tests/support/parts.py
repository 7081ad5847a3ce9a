"""Plans with parts as a test uses them: tensors that differ by rank and place, and NumPy's idea of a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf._native import loader
from smddp_tf.collectives import emit
from smddp_tf.collectives.reduce_op import ReduceSpec

AVERAGE = ReduceSpec()
SHAPES = [(7, 5), (), (0, 3), (1,), (1023,), (131, 257), (3, 2, 2)]


def degrees(hvd: Any) -> list[int]:
    """All that the ranks can share."""
    ranks, local = hvd.size(), hvd.local_size()
    return [k for k in range(1, ranks + 1) if ranks % k == 0 and (local % k == 0 or k % local == 0)]


def brought(rank: int, shapes: Sequence[Sequence[int]] = SHAPES, dtype: str = "float32", step: int = 0) -> list[Any]:
    """Fractions, so that the order of the additions matters."""
    random = np.random.default_rng([rank, step])
    return [tf.cast(random.normal(size=shape), dtype) for shape in shapes]


def cut(whole: np.ndarray, parts: int, place: int) -> np.ndarray:
    """The part of that place, filled up with zeros."""
    flat = np.ravel(whole)
    length = -(-flat.size // (16 * parts)) * 16
    part = np.zeros([length], flat.dtype)
    part[: max(0, min(length, flat.size - place * length))] = flat[place * length : (place + 1) * length]
    return part


def register(
    key: str, kind: str, tensors: Sequence[Any], parts: int, reduction: ReduceSpec = AVERAGE, process_set: int = 0
) -> int:
    return loader.core().register_plan(
        key,
        [tensor.dtype.name for tensor in tensors],
        [tensor.shape.as_list() for tensor in tensors],
        int(reduction.op),
        reduction.prescale,
        reduction.postscale,
        reduction.wire_dtype,
        [],
        process_set,
        [],
        kind,
        parts,
    )


def reduced(tensors: Sequence[Any], parts: int, key: str, reduction: ReduceSpec = AVERAGE, **where: Any) -> list:
    """In a graph: this rank's parts."""
    plan = register(key, "reduce_parts", tensors, parts, reduction, **where)
    return [
        emit.reduce_part(tensor, plan, index, reduction, key, f"{key}.{index}", parts)
        for index, tensor in enumerate(tensors)
    ]


def gathered(pieces: Sequence[Any], like: Sequence[Any], parts: int, key: str, **where: Any) -> list:
    """In a graph: whole tensors, of the shapes of `like`."""
    plan = register(key, "gather_parts", like, parts, ReduceSpec(1), **where)
    return [
        emit.gather_part(piece, plan, index, tensor.shape, key, f"{key}.{index}", parts)
        for index, (piece, tensor) in enumerate(zip(pieces, like))
    ]


def reducer(parts: int, key: str, *args: Any, **where: Any) -> Any:
    return tf.function(lambda *tensors: reduced(tensors, parts, key, *args, **where))


def gatherer(like: Sequence[Any], parts: int, key: str, **where: Any) -> Any:
    return tf.function(lambda *pieces: gathered(pieces, like, parts, key, **where))

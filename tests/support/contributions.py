"""What each rank brings to the collectives under test: dtypes, shapes and small integers that sum exactly."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

REDUCIBLE = ("uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
MOVABLE = (*REDUCIBLE, "bool", "uint32", "uint64", "complex64", "complex128")
SHAPES = ((), (1,), (7,), (3, 5), (0,), (2, 0, 3), (1000,))


def contribution(rank: int, shape=(3, 5), dtype="float32") -> tf.Tensor:
    """A small integer in every place, different for every rank: sums and products are exact in each dtype."""
    values = (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3 + rank) % 4 + 1
    return tf.cast(values, dtype)


def everybody(size: int, shape=(3, 5), dtype="float32") -> np.ndarray:
    return np.stack([contribution(rank, shape, dtype).numpy() for rank in range(size)])

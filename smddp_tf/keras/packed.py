"""Arrays of several shapes that travel over the ranks as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.collectives import ops
from smddp_tf.collectives.reduce_op import Sum


def reduce_packed(arrays: Sequence[np.ndarray], op: int, name: str) -> list[np.ndarray]:
    """Reduces the arrays over all ranks, in float64; shapes and their order are the same on all ranks."""
    flat = np.concatenate([np.ravel(array).astype(np.float64) for array in arrays])
    reduced = ops.allreduce(tf.constant(flat), op=op, name=of_thread(name)).numpy()
    pieces = np.split(reduced, np.cumsum([np.size(array) for array in arrays])[:-1])
    return [piece.reshape(np.shape(array)) for piece, array in zip(pieces, arrays)]


def weighted_means(arrays: Sequence[np.ndarray], samples: Sequence[float], name: str) -> list[np.ndarray]:
    """Means over all ranks, weighted by samples.

    Args:
        arrays: as for `reduce_packed`.
        samples: for each array, the number of this rank's samples that it stands for.
        name: of the reduction.
    """
    if not arrays:
        return []
    # What a rank without samples has to say may be NaN.
    weighted = [array * count if count else np.zeros_like(array) for array, count in zip(arrays, samples)]
    *totals, counts = reduce_packed([*weighted, np.array(samples)], Sum, name)
    return [total / max(count, 1.0) for total, count in zip(totals, counts)]


def number_or_array(value: np.ndarray) -> float | np.ndarray:
    """A float for an array without dimensions, as logs hold them; others as they are."""
    return float(value) if np.ndim(value) == 0 else value

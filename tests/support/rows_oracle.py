"""How reducescatter divides rows among the ranks, and Adasum of their vectors, in NumPy."""

from __future__ import annotations

import numpy as np


def rows_of(rows: int, ranks: int) -> list[slice]:
    """Horovod's division: the first ranks get one more."""
    lengths = [rows // ranks + (rank < rows % ranks) for rank in range(ranks)]
    ends = np.cumsum([0, *lengths])
    return [slice(begin, end) for begin, end in zip(ends, ends[1:])]


def adasum_of_two(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Maleki et al., arXiv 2006.02924, equation for two gradients."""
    dot, of_a, of_b = a @ b, a @ a, b @ b
    return (1 - dot / (2 * of_a) if of_a else 1) * a + (1 - dot / (2 * of_b) if of_b else 1) * b


def adasum_tree(vectors: list[np.ndarray]) -> np.ndarray:
    """Neighbours first; the ranks beyond a power of two are joined with theirs before."""
    vectors = [vector.astype(np.float64) for vector in vectors]
    extra = len(vectors) - 2 ** (len(vectors).bit_length() - 1)
    pairs = [adasum_of_two(vectors[2 * i], vectors[2 * i + 1]) for i in range(extra)]
    vectors = pairs + vectors[2 * extra :]
    while len(vectors) > 1:
        vectors = [adasum_of_two(vectors[i], vectors[i + 1]) for i in range(0, len(vectors), 2)]
    return vectors[0]

"""Allgathers of few bytes, which travel inside control messages, and those just too large for that."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")

RANK_LIMIT = 1024  # bytes of a rank, of all its tensors


def rows_of(rank: int, rows: int, width: int, dtype: str) -> np.ndarray:
    return (np.arange(rows * width).reshape(rows, width) % 120 + 3 * rank).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex128", "bool"])
@pytest.mark.parametrize("rows", ["one", "none on rank 0", "as many as the rank", "one rank has too many"])
def test_rows(hvd, rank, size, dtype, rows):
    def count(of_rank: int) -> int:
        last = of_rank == size - 1
        counts = {
            "one": 1,
            "none on rank 0": 2 * (of_rank > 0),
            "as many as the rank": of_rank,
            "one rank has too many": RANK_LIMIT + 1 if last else 1,
        }
        return counts[rows]

    mine = rows_of(rank, count(rank), 3, dtype)
    result = hvd.allgather(tf.constant(mine), name=f"small.{dtype}.{rows}")
    expected = np.concatenate([rows_of(other, count(other), 3, dtype) for other in range(size)])
    assert result.dtype == tf.as_dtype(dtype)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("elements", [1, 255, 256, 257, 1024, 1025])
def test_around_the_limits(hvd, rank, size, elements):
    mine = np.arange(elements, dtype=np.float32) + 1000 * rank
    result = hvd.allgather(tf.constant(mine), name=f"limit.{elements}")
    np.testing.assert_array_equal(result, np.concatenate([np.arange(elements) + 1000 * r for r in range(size)]))


def test_a_group_of_several_dtypes(hvd, rank, size, run):
    def tensors(of_rank):
        return [
            np.full([of_rank + 1, 2], of_rank, np.int16),
            np.arange(of_rank, dtype=np.float64),
            np.array([[of_rank % 2 == 0]]),
        ]

    results = run(lambda: hvd.grouped_allgather([tf.constant(one) for one in tensors(rank)], name="small.group"))
    for result, of_ranks in zip(results, zip(*(tensors(other) for other in range(size)))):
        np.testing.assert_array_equal(result, np.concatenate(of_ranks))


def test_many_at_a_time(hvd, rank, size):
    @tf.function
    def gather(x):
        return [hvd.allgather(x + place, name=f"many.{place}") for place in range(50)]

    for place, result in enumerate(gather(tf.constant([[rank]]))):
        np.testing.assert_array_equal(result, np.arange(size)[:, None] + place)

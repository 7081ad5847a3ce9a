"""SmddpAlltoall: rows by splits or evenly, and the rows received from each rank."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import loader

pytestmark = pytest.mark.ranks("2", "2+1")

WIDTH = 300


def alltoall(array: np.ndarray, splits: list[int], name: str, even: bool = False):
    return loader.op_library().smddp_alltoall(
        tensor=tf.constant(array), splits=tf.constant(splits, tf.int64), tensor_name=name, even_split=even
    )


def rows(sender: int, receiver: int, count: int) -> np.ndarray:
    """What a rank sends another: no two rows of a job are equal."""
    first = 1000 * sender + 100 * receiver
    return np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], WIDTH, axis=1)


def test_rows_by_splits(hvd, rank, size):
    """Rank s sends rank r 2s + r rows: none from 0 to 0."""
    splits = [2 * rank + to for to in range(size)]
    mine = np.concatenate([rows(rank, to, splits[to]) for to in range(size)])
    outputs = alltoall(mine, splits, "splits")
    np.testing.assert_array_equal(outputs.received_splits, [2 * sender + rank for sender in range(size)])
    assert outputs.received_splits.dtype == tf.int32
    np.testing.assert_array_equal(
        outputs.received, np.concatenate([rows(sender, rank, 2 * sender + rank) for sender in range(size)])
    )


def test_even_splits_are_not_read(hvd, rank, size):
    mine = np.concatenate([rows(rank, to, 2) for to in range(size)])
    outputs = alltoall(mine, [99], "even", even=True)
    np.testing.assert_array_equal(outputs.received_splits, [2] * size)
    np.testing.assert_array_equal(outputs.received, np.concatenate([rows(sender, rank, 2) for sender in range(size)]))


def test_bad_splits_of_one_rank_are_an_error_on_all(hvd, rank, size):
    mine = np.concatenate([rows(rank, to, 2) for to in range(size)])
    splits = [2] * size if rank else [3] * size
    with pytest.raises(tf.errors.OpError, match="rank 0"):
        alltoall(mine, splits, "bad")
    outputs = alltoall(mine, [2] * size, "goes on")
    assert outputs.received.shape == [2 * size, WIDTH]


def test_nothing_is_received_by_one_rank(hvd, rank, size):
    splits = [0] * (size - 1) + [4]
    outputs = alltoall(rows(rank, size - 1, 4), splits, "last")
    count = 4 if rank == size - 1 else 0
    np.testing.assert_array_equal(outputs.received_splits, [count] * size)
    assert outputs.received.shape == [count * size, WIDTH]

"""SmddpBroadcast: the root's tensors everywhere, and its own buffers untouched."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import loader

pytestmark = pytest.mark.ranks("2", "2+1")


def broadcast(tensors, root: int, name: str, process_set: int = 0):
    return loader.op_library().smddp_broadcast(
        tensors=tensors, root_rank=root, tensor_name=name, process_set=process_set
    )


def values(rank: int) -> list[np.ndarray]:
    """Small, large and empty ones, of several dtypes."""
    return [
        np.arange(5, dtype=np.int32) - 1000 * rank,
        np.sin(np.arange(70_001) + rank).astype(np.float32),
        np.zeros([3, 0], np.float64),
        np.array(rank % 2 == 0),
        np.array([rank + 2j], np.complex64),
    ]


@pytest.mark.parametrize("root", ["first", "last"])
def test_all_have_the_roots(hvd, rank, size, run, root):
    number = 0 if root == "first" else size - 1
    results = run(lambda: broadcast([tf.constant(one) for one in values(rank)], number, f"roots.{root}"))
    for result, expected in zip(results, values(number)):
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == tf.as_dtype(expected.dtype)


def test_inputs_that_have_other_readers_stay(hvd, rank, size):
    own = np.arange(5000, dtype=np.float32) + 10_000 * rank

    @tf.function
    def received(x):
        x = x + 0.0
        (result,) = broadcast([x], 1, "stay")
        return result, x

    result, input_after = received(tf.constant(own))
    np.testing.assert_array_equal(result, own % 10_000 + 10_000)
    np.testing.assert_array_equal(input_after, own)


def test_the_root_is_a_number_among_all_ranks(sets, rank, size):
    """In the set without rank 0, rank 1 is its first."""
    high = sets["high"]
    if not high.included():
        return
    (result,) = broadcast([tf.constant([float(rank)])], size - 1, "of all", process_set=high.process_set_id)
    assert float(result[0]) == size - 1


def test_ranks_that_name_different_roots(hvd, rank):
    with pytest.raises(tf.errors.FailedPreconditionError, match="root"):
        broadcast([tf.zeros(2)], min(rank, 1), "which root")

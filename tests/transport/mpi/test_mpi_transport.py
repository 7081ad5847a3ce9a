"""Messages over MPI, between the ranks of (pretended) nodes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import loader

pytestmark = pytest.mark.ranks("2", "2+1", "2+2")


def values(rank: int, length: int) -> np.ndarray:
    return ((np.arange(length, dtype=np.int64) * 2_654_435_761 + 97 * rank) % 1_000_003).astype(np.float32)


@pytest.mark.parametrize("length", [1, 257, 65_536, 3_000_001])
def test_messages_of_all_lengths(hvd, rank, size, length):
    """Of a few bytes, those that MPI buffers, and those that it does not."""
    for root in range(size):
        result = hvd.broadcast(tf.constant(values(rank, length)), root, name=f"long.{length}.{root}")
        np.testing.assert_array_equal(result, values(root, length))


def test_many_messages_at_once_keep_apart(hvd, rank, size):
    """More than the numbers of a tag's lower bits, begun in opposite orders."""

    @tf.function
    def exchange(x):
        order = range(150) if rank else reversed(range(150))
        results = {number: hvd.allreduce(x + number, op=hvd.Sum, name=f"apart.{number}") for number in order}
        return [results[number] for number in range(150)]

    for _ in range(2):
        x = values(rank, 600)
        total = sum(values(other, 600) for other in range(size))
        for number, result in enumerate(exchange(tf.constant(x))):
            np.testing.assert_array_equal(result, total + size * number)


def test_bytes_are_counted(hvd, rank, size, mpi):
    """Each reducer sends the other node half of its part to be summed, and its half of the sums; one node nothing."""
    before = loader.core().stats()["rail_bytes_sent"]
    hvd.allreduce(tf.constant(values(rank, 524_288)), op=hvd.Sum, name="counted")
    sent = loader.core().stats()["rail_bytes_sent"] - before
    reducers = min(mpi.allgather(hvd.local_size()))
    sends = hvd.local_rank() < reducers and hvd.cross_size() > 1
    assert sent == (4 * 524_288 // reducers if sends else 0)


def test_long_control_messages(hvd, rank, size):
    """Names of 100 kB, which MPI does not buffer, between short ones: each sender's order is kept."""
    for number in range(4):
        name = f"{number}." + "n" * (100_000 if number % 2 else 3)
        result = hvd.allreduce(tf.constant([rank + 1.0, number]), op=hvd.Sum, name=name)
        np.testing.assert_array_equal(result, [sum(range(1, size + 1)), size * number])


def test_a_message_of_another_session_is_not_received(restartable, rank, size):
    """Sessions one after the other use the same tags."""
    hvd = restartable
    for number in range(3):
        result = hvd.allreduce(tf.constant(values(rank, 5000) + number), op=hvd.Sum, name="same")
        np.testing.assert_array_equal(result, sum(values(other, 5000) + number for other in range(size)))
        hvd.shutdown()
        hvd.init()

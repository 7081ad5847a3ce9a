"""SmddpRunBegins: a run that fails before it has brought its collective is not taken for one that has not begun."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2", "2+1")


def test_a_failure_before_the_collective_ends_the_step_on_all(hvd, rank, size):
    """Rank 0's run brings no tensor: the others get an error, and the next run is matched with theirs."""

    @tf.function
    def step(x, ok):
        with tf.control_dependencies([tf.debugging.Assert(ok, ["this step fails here"])]):
            x = tf.identity(x)
        return hvd.allreduce(x, op=hvd.Sum, name="after a check")

    for number in range(3):
        x = tf.constant([10.0 * number + rank, 1.0])
        np.testing.assert_array_equal(step(x, True), [10.0 * number * size + sum(range(size)), size])
    with pytest.raises(tf.errors.OpError, match="this step fails here" if rank == 0 else "Rank 0 gave up"):
        step(tf.constant([-1.0, -1.0]), rank != 0)
    for number in range(3):
        x = tf.constant([100.0 * number + rank, 2.0])
        np.testing.assert_array_equal(step(x, True), [100.0 * number * size + sum(range(size)), 2.0 * size])

"""Training with DistributedGradientTape, against one process on the whole batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("1", "2")


def test_training_matches_one_process_on_the_whole_batch(hvd, rank, size):
    """Linear regression: the mean of equal parts of the batch is the batch."""
    rng = np.random.default_rng(3)
    inputs, targets = rng.normal(size=(4 * size, 3)), rng.normal(size=(4 * size, 1))

    def train(x, y, wrap):
        weight, bias = tf.Variable(tf.zeros([3, 1], tf.float64)), tf.Variable(tf.zeros([1], tf.float64))

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weight + bias - y) ** 2)
            for grad, variable in zip(wrap(tape).gradient(loss, [weight, bias]), [weight, bias]):
                variable.assign_sub(0.1 * grad)

        for _ in range(20):
            step()
        return np.concatenate([weight.numpy().ravel(), bias.numpy()])

    mine = slice(4 * rank, 4 * rank + 4)
    distributed = train(inputs[mine], targets[mine], hvd.DistributedGradientTape)
    alone = train(inputs, targets, lambda tape: tape)
    np.testing.assert_allclose(distributed, alone, rtol=1e-12)

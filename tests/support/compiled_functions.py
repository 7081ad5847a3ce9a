"""Functions that XLA compiles: how they are made, and a step whose gradients are known."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


def make_step(hvd, rank):
    variables = [tf.Variable(tf.ones([3, 2])), tf.Variable(tf.ones([4], tf.float64)), tf.Variable(2.0)]

    def step(factor):
        with tf.GradientTape() as tape:
            loss = factor * (rank + 1.0) * sum(tf.cast(tf.reduce_sum(v * v), tf.float32) for v in variables)
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    return step


def check_gradients(grads, factor, size):
    mean = (size + 1) / 2
    expected = [np.full([3, 2], 2.0), np.full([4], 2.0), 4.0]
    for grad, value in zip(grads, expected):
        np.testing.assert_allclose(grad, np.multiply(value, factor * mean), rtol=1e-6)

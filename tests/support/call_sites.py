"""Variables, gradients and expected values of the tests of calls that run at the same time in one graph."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

STEPS = 15


def mean(size):
    """Over the ranks of rank + 1."""
    return (size + 1) / 2


def after_work(x, iterations):
    """`x`, later."""
    made = tf.while_loop(
        lambda i, _: i < iterations, lambda i, m: (i + 1, tf.linalg.matmul(m, m) * 0.0 + 1.0), [0, tf.ones([16, 16])]
    )[1]
    return x + 0.0 * made[0, 0]


def taped(hvd, variables, scale, delay):
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(v) * (scale * (i + 1)) for i, v in enumerate(variables)])
        loss = after_work(loss, delay)
    return hvd.DistributedGradientTape(tape).gradient(loss, variables)


def variables():
    return [tf.Variable(tf.zeros([3 + i])) for i in range(4)]


def check_taped(grads, scale, size):
    for i, grad in enumerate(grads):
        np.testing.assert_allclose(grad, np.full(3 + i, scale * (i + 1) * mean(size)), rtol=1e-6)


def taped_plain(hvd, variables, scale):
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(v) * (scale * (i + 1)) for i, v in enumerate(variables)])
    return hvd.DistributedGradientTape(tape).gradient(loss, variables)

"""What was traced goes on working after `hvd.shutdown()` and `hvd.init()`."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")


@pytest.fixture(autouse=True)
def running_again(hvd):
    yield
    hvd.init()


def mean(size: int) -> float:
    """Over the ranks of rank + 1."""
    return (size + 1) / 2


def taped(hvd, variables):
    def step(weight):
        with tf.GradientTape() as tape:
            loss = weight * tf.add_n([tf.reduce_sum(v * v) for v in variables])
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    return step


@pytest.mark.parametrize("compiled", [False, True])
def test_traced_functions_survive(hvd, rank, size, compiled):
    """Gradients of two functions with equal keys, so their plans must not be mixed up, and named ops."""
    small = [tf.Variable([1.0, 2.0])]
    large = [tf.Variable(tf.ones([30, 40])), tf.Variable(tf.ones([5000])), tf.Variable(tf.ones([7]))]
    steps = [tf.function(taped(hvd, variables), jit_compile=compiled) for variables in (small, large)]

    @tf.function(jit_compile=compiled)
    def named(x):
        root = hvd.broadcast(x, size - 1, name="root")
        return hvd.allreduce(x, op=hvd.Sum, name="sum"), root, hvd.allgather(x, name="rows")

    traces = []
    for session in range(3):
        for _ in range(2):
            for variables, step in zip((small, large), steps):
                for variable, grad in zip(variables, step(tf.constant(rank + 1.0))):
                    np.testing.assert_allclose(grad, 2 * mean(size) * variable.numpy(), rtol=1e-6)
        total, root, rows = named(tf.fill([3], float(rank)))
        np.testing.assert_array_equal(total, [size * (size - 1) / 2] * 3)
        np.testing.assert_array_equal(root, [size - 1.0] * 3)
        np.testing.assert_array_equal(rows, np.repeat(np.arange(size), 3))
        traces.append([step.experimental_get_tracing_count() for step in (*steps, named)])
        hvd.shutdown()
        if session < 2:
            hvd.init()
    assert traces == [[1, 1, 1]] * 3


def test_a_function_traced_in_between_does_not_disturb(hvd, rank, size):
    """Old and new functions in one session; the new one has the list of gradients of the old one."""
    variables = [tf.Variable(tf.ones([300])), tf.Variable([1.0])]
    old = tf.function(taped(hvd, variables))
    old(tf.constant(1.0))
    hvd.shutdown()
    hvd.init()
    new = tf.function(taped(hvd, variables))
    other = tf.function(taped(hvd, variables[:1]))
    for step in (other, new, old, other, old):
        for grad in step(tf.constant(rank + 1.0)):
            np.testing.assert_allclose(grad, tf.fill(grad.shape, 2 * mean(size)), rtol=1e-6)

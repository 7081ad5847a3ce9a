"""The gradients of the collectives, eager and in a `tf.function`."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_gradient_of_allreduce(hvd, rank, size, run, op):
    """The same reduction, with the same scales, of the ranks' gradients."""

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allreduce(x, op=getattr(hvd, op), prescale_factor=3.0) * float(rank + 1)
        return tape.gradient(y, x)

    expected = 3.0 * sum(range(1, size + 1)) / (size if op == "Average" else 1)
    np.testing.assert_allclose(run(body, tf.ones([4])), np.full(4, expected), rtol=1e-6)


def test_gradient_of_grouped_allreduce(hvd, rank, size, run):
    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, number, _ = hvd.grouped_allreduce([x, tf.constant(7), x * 2.0], op=hvd.Sum)
            loss = tf.reduce_sum(y) * float(rank + 1) + tf.cast(number, tf.float32)
        return tape.gradient(loss, x)

    np.testing.assert_allclose(run(body, tf.ones([4])), np.full(4, sum(range(1, size + 1))))


@pytest.mark.parametrize("op", ["Min", "Max", "Product"])
def test_reductions_without_gradient(hvd, op):
    x = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        y = hvd.allreduce(x, op=getattr(hvd, op))
    with pytest.raises(LookupError, match=rf"hvd\.{op} has no gradient"):
        tape.gradient(y, x)


def test_gradient_of_broadcast(hvd, rank, size, run):
    root = size - 1

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.broadcast(x, root) * float(rank + 1)
        return tape.gradient(y, x)

    expected = sum(range(1, size + 1)) / size if rank == root else 0.0
    np.testing.assert_allclose(run(body, tf.ones([4])), np.full(4, expected), rtol=1e-6)


def test_gradient_of_allgather(hvd, rank, size, run):
    """Row i of the result weighs i + 1 on every rank; each rank gets the weights of its own rows back."""
    rows = [r + 1 for r in range(size)]
    first = sum(rows[:rank])

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allgather(x) * tf.reshape(tf.range(1.0, sum(rows) + 1.0), [-1, 1])
        return tape.gradient(y, x)

    result = run(body, tf.ones([rows[rank], 2]))
    expected = np.repeat(np.arange(first, first + rows[rank])[:, None] + 1.0, 2, axis=1)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_gradient_of_a_gradient(hvd, rank, size, run):
    """d/dx of (the mean of x) ** 3, twice: each differentiation is reduced as well."""

    def body(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = hvd.allreduce(x) ** 3
            first = inner.gradient(y, x)
        return first, outer.gradient(first, x)

    first, second = run(body, tf.constant(2.0))
    assert float(first) == pytest.approx(12.0)
    assert float(second) == pytest.approx(12.0)

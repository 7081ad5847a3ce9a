"""Optimizers of TensorFlow 1 in float64 and with TensorFlow 1's mixed precision, as simulation programs use them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")

v1 = tf.compat.v1


@pytest.mark.parametrize("resource", [True, False], ids=["resource variables", "reference variables"])
def test_float64_equals_one_process(hvd, rank, size, resource):
    """Adam on a rank's part of the data, as on the whole: to the precision of float64, over many steps."""
    rows = np.random.default_rng(0).normal(size=(4 * size, 3))
    values = []
    for optimizer, mine in (
        (hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.1)), rows[rank::size]),
        (v1.train.AdamOptimizer(0.1), rows),
    ):
        with tf.Graph().as_default(), v1.Session() as session:
            w = v1.get_variable("w", initializer=np.ones([3, 2]), use_resource=resource)
            b = v1.get_variable("b", initializer=np.zeros([2]), use_resource=resource)
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.constant(mine) @ w + b) - 0.3))
            step = v1.train.get_or_create_global_step()
            train = optimizer.minimize(loss=loss, global_step=step, var_list=[w, b], name="train_step")
            assert train.name == "train_step"
            session.run(v1.global_variables_initializer())
            session.run(hvd.broadcast_global_variables(0))
            for _ in range(40):
                session.run(train)
            assert session.run(step) == 40
            values.append(session.run([w, b]))
    for ours, single in zip(*values):
        np.testing.assert_allclose(ours, single, rtol=1e-12)


@pytest.fixture
def rewrite() -> Iterator:
    """`enable_mixed_precision_graph_rewrite`, which holds for the process."""
    yield v1.mixed_precision.enable_mixed_precision_graph_rewrite
    v1.mixed_precision.disable_mixed_precision_graph_rewrite()


def test_mixed_precision_around_the_wrapped_optimizer(hvd, rank, size, rewrite):
    """A gradient that overflows on one rank: no rank takes the step, and all halve their loss scale."""
    with tf.Graph().as_default(), v1.Session() as session:
        scale = v1.mixed_precision.DynamicLossScale(initial_loss_scale=2.0**10, increment_period=100)
        x = v1.placeholder(tf.float32, [2])
        w = v1.get_variable("w", initializer=[1.0, 1.0], use_resource=True)  # as TensorFlow needs in its cond
        step = v1.train.get_or_create_global_step()
        optimizer = rewrite(hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0)), scale)
        train = optimizer.minimize(tf.reduce_sum(w * x), global_step=step, var_list=[w])
        session.run(v1.global_variables_initializer())
        for mine in ([rank + 1.0, 2.0], [np.inf if rank == size - 1 else 1.0, 2.0], [rank + 1.0, 2.0]):
            session.run(train, {x: mine})
        expected = np.array([1.0, 1.0]) - 2 * np.array([(size + 1) / 2, 2.0])
        np.testing.assert_allclose(session.run(w), expected, rtol=1e-6)
        assert session.run(scale()) == 2.0**9
        assert session.run(step) == 2

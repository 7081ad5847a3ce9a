"""Graphs and sessions of TensorFlow 1: optimizers, hooks and collectives where TensorFlow still has them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")

v1 = tf.compat.v1


def mean_weight(size: int) -> float:
    return (size + 1) / 2


@pytest.mark.parametrize("resource", [True, False], ids=["resource variables", "reference variables"])
def test_a_script_of_tensorflow_1(hvd, rank, size, resource):
    """Ranks begin apart and feed different data: momentum, slots, and only a part of what could be reduced."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2])
        w = v1.Variable([float(rank), 1.0], use_resource=resource, name="w")
        unused = v1.Variable(1.0, use_resource=resource)
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.5, 0.5))
        loss = tf.reduce_sum(w * x)
        pairs = optimizer.compute_gradients(loss, [w, unused])
        assert pairs[1] == (None, unused)
        other = v1.Variable([1.0, 1.0], use_resource=resource)
        (first, _), (second, _) = optimizer.compute_gradients(tf.reduce_sum((w + other) * x), [w, other])
        step = v1.train.get_or_create_global_step()
        train = optimizer.apply_gradients(pairs[:1], global_step=step)
        minimize = optimizer.minimize(loss, var_list=[w])
        total = hvd.allreduce(tf.constant(rank + 1.0), op=hvd.Sum)
        start = hvd.broadcast_global_variables(size - 1)
        session.run(v1.global_variables_initializer())
        session.run(start)
        np.testing.assert_allclose(session.run(w), [size - 1.0, 1.0])
        mine = {x: [rank + 1.0, 2.0]}
        np.testing.assert_allclose(session.run(second, mine), [mean_weight(size), 2.0])  # `first` is not asked for
        np.testing.assert_allclose(session.run([first, total], mine)[1], mean_weight(size) * size)
        session.run(train, mine)
        session.run(minimize, mine)  # gradient g twice: momentum 1.5 g in the second step
        gradient = np.array([mean_weight(size), 2.0])
        np.testing.assert_allclose(session.run(w), np.array([size - 1.0, 1.0]) - 0.5 * 2.5 * gradient, rtol=1e-6)
        np.testing.assert_allclose(session.run(optimizer.get_slot(w, "momentum")), 1.5 * gradient, rtol=1e-6)
        assert optimizer.get_slot_names() == ["momentum"]
        assert session.run(step) == 1


@pytest.mark.parametrize("eager", [False, True])
def test_an_optimizer_that_one_rank_makes_and_does_not_use(hvd, rank, size, eager):
    """To look into a checkpoint, say: the others' optimizers are not mixed up by it."""

    def wrap():
        return hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))

    if rank == 0:
        wrap()
    if eager:
        w = tf.Variable([1.0, 2.0])
        pairs = wrap().compute_gradients(lambda: tf.reduce_sum(w * (rank + 1.0)), [w])
        np.testing.assert_allclose(pairs[0][0], [mean_weight(size)] * 2)
        return
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable([1.0, 2.0])
        if rank == 0:
            wrap()
        for factor in (1.0, 10.0):
            [(grad, _)] = wrap().compute_gradients(tf.reduce_sum(w * (rank + 1.0)) * factor, [w])
            session.run(v1.global_variables_initializer())
            np.testing.assert_allclose(session.run(grad), [mean_weight(size) * factor] * 2)


@pytest.mark.parametrize("average", [False, True])
def test_several_passes_for_one_update(hvd, rank, size, average):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2])
        w, local = v1.Variable([0.0, 0.0]), v1.Variable([0.0, 0.0])
        optimizer = hvd.DistributedOptimizer(
            v1.train.AdamOptimizer(0.1) if average else v1.train.GradientDescentOptimizer(1.0),
            backward_passes_per_step=3,
            average_aggregated_gradients=average,
        )
        optimizer.register_local_var(local)
        step = v1.train.get_or_create_global_step()
        train = optimizer.minimize(tf.reduce_sum((w + local) * x), global_step=step)
        session.run(v1.global_variables_initializer())
        history = []
        for number in range(6):
            session.run(train, {x: [rank + 1.0, float(number)]})
            history.append(session.run([w, local]))
        assert session.run(step) == 6
    changed = [bool(np.any(history[i][0] != (history[i - 1][0] if i else 0.0))) for i in range(6)]
    assert changed == [False, False, True, False, False, True]
    if not average:
        np.testing.assert_allclose(history[2][0], [-3.0 * mean_weight(size), -3.0], rtol=1e-6)
        np.testing.assert_allclose(history[5][0], [-6.0 * mean_weight(size), -15.0], rtol=1e-6)
        np.testing.assert_allclose(history[5][1], [-6.0 * (rank + 1) / size, -15.0 / size], rtol=1e-6)


def test_rows_need_sparse_as_dense_with_several_passes(hvd, rank, size):
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.Variable(tf.zeros([4, 2]))
        loss = (rank + 1.0) * tf.reduce_sum(tf.gather(table, [1, 1]))
        make = lambda **more: hvd.DistributedOptimizer(  # noqa: E731
            v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2, **more
        )
        with pytest.raises(ValueError, match="sparse_as_dense=True"):
            make().minimize(loss)
        train = make(sparse_as_dense=True).minimize(loss)
        plain = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0)).minimize(loss)
        session.run(v1.global_variables_initializer())
        session.run(train)
        session.run(train)
        session.run(plain)
        np.testing.assert_allclose(session.run(table)[1], [-6.0 * mean_weight(size)] * 2, rtol=1e-6)


def test_the_hook(hvd, rank, size):
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=tf.constant([rank + 5.0]))
        step = v1.train.get_or_create_global_step()
        train = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0)).minimize(
            tf.reduce_sum(w) * (rank + 1.0), global_step=step
        )
        hook = hvd.BroadcastGlobalVariablesHook(0)
        with v1.train.MonitoredTrainingSession(hooks=[hook, v1.train.StopAtStepHook(last_step=2)]) as session:
            while not session.should_stop():
                value = session.run([train, w])[1]
    assert value[0] in (5.0 - mean_weight(size), 5.0 - 2 * mean_weight(size))  # read before or after the second update


def test_objects_and_sessions(hvd, rank, size):
    with tf.Graph().as_default(), v1.Session() as session:
        assert hvd.broadcast_object({"rank": rank}, 0, session) == {"rank": 0}
        assert hvd.allgather_object(rank, session) == list(range(size))
        assert hvd.broadcast_object_fn(size - 1, session, "fn")(rank) == size - 1


def test_eager_and_functions(hvd, rank, size):
    for run in (lambda function: function(), lambda function: tf.function(function)()):
        w = tf.Variable([0.0])
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), name="mine")

        def body(w=w, optimizer=optimizer):
            optimizer.minimize(lambda: tf.reduce_sum(w) * (rank + 1.0), var_list=[w])

        run(body)
        np.testing.assert_allclose(w, [-mean_weight(size)])
        assert optimizer.get_name() == "mine"
    with pytest.raises(ValueError, match="backward_passes_per_step=2 in eager mode"):
        hvd.DistributedOptimizer(v1.train.AdamOptimizer(), backward_passes_per_step=2)
    with pytest.raises(ValueError, match="has no meaning for hvd.Adasum"):
        hvd.DistributedOptimizer(v1.train.AdamOptimizer(), op=hvd.Adasum, average_aggregated_gradients=True)
    with pytest.raises(ValueError, match="at least 1"):
        hvd.DistributedOptimizer(v1.train.AdamOptimizer(), backward_passes_per_step=0)
    with pytest.raises(ValueError, match="needs op=hvd.Average"):
        hvd.DistributedOptimizer(v1.train.AdamOptimizer(), op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(RuntimeError, match="does not support eager execution"):
        hvd.broadcast_global_variables(0)


@pytest.mark.parametrize("root", ["first", "last"])
def test_gradients_of_collectives(hvd, rank, size, root):
    """A session runs what a rank fetches and no more: each rank's result must need the reduction."""
    root = 0 if root == "first" else size - 1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2])
        rows = hvd.allgather(x) * tf.range(1.0, 2.0 * size + 1.0)
        sums = hvd.reducescatter(tf.tile(x, [size]), op=hvd.Sum)
        moved, _ = hvd.alltoall(tf.tile(x, [size]), splits=[2] * size)
        results = [hvd.broadcast(x, root), hvd.allreduce(x), rows, sums, moved * (rank + 1.0)]
        expected = [
            [float(rank == root)] * 2,
            [1.0, 1.0],
            [2.0 * rank + 1.0, 2.0 * rank + 2.0],
            [float(size * size)] * 2,
            [size * mean_weight(size)] * 2,
        ]
        for result, gradient in zip(results, expected):
            got = session.run(tf.gradients(result, x)[0], {x: [rank + 1.0, 2.0]})
            np.testing.assert_allclose(got, gradient, rtol=1e-6)


def test_gradients_of_a_rank_without_rows(hvd, rank, size):
    """Its own gradients are empty, which is known beforehand; the others' are not."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = tf.fill([rank, 3], rank + 1.0)
        moved, _ = hvd.alltoall(x, splits=[rank] + [0] * (size - 1))
        for result in (hvd.allgather(x) * 2.0, moved * 2.0):
            np.testing.assert_array_equal(session.run(tf.gradients(result, x)[0]), np.full([rank, 3], 2.0))

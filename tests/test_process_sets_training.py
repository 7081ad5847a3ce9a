"""Gradients, tapes, optimizers and compiled functions of process sets."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import tensorflow as tf

from tests.support.process_sets import mine, value_of
from tests.support.rows_oracle import adasum_tree

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_gradients_of_collectives(hvd, rank, sets, mode):
    run = tf.function if mode == "graph" else lambda function: function
    for process_set in mine(sets):
        ranks, root = process_set.ranks, process_set.ranks[-1]

        @run
        def body(x, process_set=process_set, root=root):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                total = hvd.allreduce(x, op=hvd.Sum, process_set=process_set) * (rank + 1.0)
                sent = hvd.broadcast(x, root, process_set=process_set) * (rank + 1.0)
                rows = hvd.allgather(x, process_set=process_set)
                rows *= tf.range(1.0, tf.cast(tf.size(rows), tf.float32) + 1.0)
            return tape.gradient(total, x), tape.gradient(sent, x), tape.gradient(rows, x)

        total, sent, rows = body(tf.ones([2]))
        weights = [r + 1.0 for r in ranks]
        np.testing.assert_allclose(total, [sum(weights)] * 2, rtol=1e-6)
        np.testing.assert_allclose(sent, [np.mean(weights) if rank == root else 0.0] * 2, rtol=1e-6)
        np.testing.assert_allclose(rows, [2 * ranks.index(rank) + 1.0, 2 * ranks.index(rank) + 2.0], rtol=1e-6)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_rows_among_the_members(hvd, rank, sets, mode):
    """Alltoall, reducescatter, grouped allgather and Adasum, and what comes back through them."""
    run = tf.function if mode == "graph" else lambda function: function
    for process_set in mine(sets):
        ranks = process_set.ranks
        place, members = ranks.index(rank), len(ranks)

        @run
        def body(x, process_set=process_set, place=place, members=members):
            splits = [0] * (members - 1) + [3]
            with tf.GradientTape() as tape:
                tape.watch(x)
                sent, counts = hvd.alltoall(x, splits, process_set=process_set)
                rows = hvd.reducescatter(tf.tile(x, [members]), op=hvd.Sum, process_set=process_set)
                [scaled] = hvd.grouped_reducescatter([tf.tile(x, [members])], process_set=process_set)
                gathered, _ = hvd.grouped_allgather([x, x[:place]], process_set=process_set)
                loss = tf.reduce_sum(sent) + tf.reduce_sum(rows) + tf.reduce_sum(scaled) + tf.reduce_sum(gathered)
            adasum = hvd.allreduce(x, op=hvd.Adasum, process_set=process_set)
            return sent, counts, rows, scaled, gathered, adasum, tape.gradient(loss, x)

        sent, counts, rows, scaled, gathered, adasum, gradient = body(tf.constant(value_of(rank)))
        values = [value_of(r) for r in ranks]
        last = place == members - 1
        np.testing.assert_array_equal(sent, np.concatenate(values) if last else [])
        np.testing.assert_array_equal(counts, [3 if last else 0] * members)
        np.testing.assert_allclose(rows, np.sum(values, axis=0))
        np.testing.assert_allclose(scaled, np.mean(values, axis=0))
        np.testing.assert_array_equal(gathered, np.concatenate(values))
        np.testing.assert_allclose(adasum, adasum_tree(values), rtol=1e-5)
        np.testing.assert_allclose(gradient, np.full(3, 1.0 + members**2 + members + 1.0))


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_tape_reduces_among_the_members_and_leaves_the_others_alone(hvd, rank, sets, mode):
    """A tape on every set in one function, all with the same list of gradients: as many plans of one key."""
    dense, table = tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([4, 2]))

    def gradients(process_set):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dense * dense) + tf.reduce_sum(tf.gather(table, [rank % 4, rank % 4]))
            loss *= rank + 1.0
        tape = hvd.DistributedGradientTape(tape, process_set=process_set)
        grads = tape.gradient(loss, [dense, table])
        return grads[0], tf.convert_to_tensor(grads[1])

    def body():
        return [gradients(process_set) for process_set in sets.values()]

    step = {"eager": body, "graph": tf.function(body), "xla": tf.function(body, jit_compile=True)}[mode]
    for _ in range(3):
        for process_set, (of_dense, of_table) in zip(sets.values(), step()):
            ranks = process_set.ranks if process_set.included() else [rank]
            np.testing.assert_allclose(of_dense, np.mean([r + 1.0 for r in ranks]) * np.array([2.0, 4.0]), rtol=1e-6)
            expected = np.zeros([4, 2])
            for r in ranks:
                expected[r % 4] += 2 * (r + 1.0) / len(ranks)
            np.testing.assert_allclose(of_table, expected, rtol=1e-6)


def test_optimizer_reduces_among_the_members(hvd, rank, sets):
    import keras

    from smddp_tf.keras.roles.wrapping import reducer_on

    for process_set in sets.values():
        wrapped = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=process_set)
        for optimizer in (wrapped, copy.deepcopy(wrapped), type(wrapped).from_config(wrapped.get_config())):
            variable = keras.Variable([1.0, 1.0])
            assert reducer_on(optimizer).settings.process_set is process_set
            optimizer.apply([tf.constant(value_of(rank, 2))], [variable])
            ranks = process_set.ranks if process_set.included() else [rank]
            np.testing.assert_allclose(variable, 1.0 - np.mean([value_of(r, 2) for r in ranks], 0), rtol=1e-6)


def test_local_gradients_and_sessions_among_the_members(hvd, rank, sets):
    """A local gradient is divided by the number of members; outside a set nothing is."""
    v1 = tf.compat.v1
    for process_set in sets.values():
        ranks = process_set.ranks if process_set.included() else [rank]
        mean = np.mean([r + 1.0 for r in ranks])
        shared, mine = tf.Variable(0.0), tf.Variable(0.0)
        with tf.GradientTape() as tape:
            loss = (shared + mine) * (rank + 1.0)
        tape = hvd.DistributedGradientTape(tape, process_set=process_set)
        tape.register_local_source(mine)
        np.testing.assert_allclose(tape.gradient(loss, [shared, mine]), [mean, (rank + 1.0) / len(ranks)], rtol=1e-6)
        with tf.Graph().as_default(), v1.Session() as session:
            w = v1.Variable(0.0)
            optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), process_set=process_set)
            train = optimizer.minimize(w * (rank + 1.0))
            session.run(v1.global_variables_initializer())
            session.run(train)
            np.testing.assert_allclose(session.run(w), -mean, rtol=1e-6)
        if process_set.included():
            variables = [tf.Variable(float(rank)), tf.Variable(f"rank {rank}")]
            root = process_set.ranks[-1]
            number, text = hvd.broadcast_(variables, root, process_set=process_set)
            assert (number.numpy(), text.numpy().decode()) == (root, f"rank {root}")


def test_fit_with_an_optimizer_of_a_set(hvd, rank, sets):
    """The other ranks train at their own pace: another number of batches."""
    import keras

    low = sets["low"]
    ranks = low.ranks if low.included() else [rank]
    batches = 2 if low.included() else 3
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), process_set=low), "mse", jit_compile=False)
    x = np.full([2 * batches, 1], rank + 1.0, np.float32)
    model.fit(x, np.zeros_like(x), batch_size=2, verbose=0)
    factor = 1.0 - 0.01 * np.mean([2 * (r + 1.0) ** 2 for r in ranks])
    np.testing.assert_allclose(model.get_weights()[0], [[factor**batches]], rtol=1e-5)


def test_functions_that_xla_compiles(hvd, rank, sets):
    for process_set in mine(sets):
        values = np.array([value_of(r) for r in process_set.ranks])

        @tf.function(jit_compile=True)
        def body(x, process_set=process_set):
            with tf.GradientTape() as tape:
                tape.watch(x)
                mean = hvd.allreduce(x, process_set=process_set)
                rows = hvd.allgather(x[tf.newaxis], process_set=process_set)
                sent = hvd.broadcast(x, process_set.ranks[-1], process_set=process_set)
            return mean, rows, sent, tape.gradient(rows, x)

        mean, rows, sent, gradient = body(tf.constant(value_of(rank)))
        np.testing.assert_allclose(mean, values.mean(0), rtol=1e-6)
        np.testing.assert_array_equal(rows, values)
        np.testing.assert_array_equal(sent, values[-1])
        np.testing.assert_allclose(gradient, np.ones(3), rtol=1e-6)

"""Collectives that run at the same time in one graph, and are equal but for their places in it.

Nothing orders calls that share no variable, so TensorFlow runs them at once. Work of another length on every rank makes
them come in another order on each; matched by arrival, their values would be exchanged.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.call_sites import STEPS, after_work, check_taped, mean, taped, variables

pytestmark = pytest.mark.ranks("2", "2+2")


@pytest.fixture
def delays(rank, size):
    """Iterations of idle work for the first and the second of two calls: the order turns from rank to rank."""
    return tf.constant([1, 400] if rank % 2 else [400, 1])


def test_one_function_called_twice(hvd, rank, size, delays):
    own = variables()
    update = tf.function(lambda scale, delay: taped(hvd, own, scale * (rank + 1.0), delay))

    @tf.function
    def step(delays):
        return update(tf.constant(1.0), delays[0]), update(tf.constant(1000.0), delays[1])

    for _ in range(STEPS):
        first, second = step(delays)
        check_taped(first, 1.0, size)
        check_taped(second, 1000.0, size)


@pytest.mark.parametrize("before", [False, True], ids=["traced inside", "one was traced before, on rank 0 alone"])
def test_two_functions_of_one_kind(hvd, rank, size, delays, before):
    """Twin critics: what a rank has traced before makes no difference."""
    first, second = variables(), variables()
    one = tf.function(lambda delay: taped(hvd, first, 1.0 * (rank + 1), delay))
    other = tf.function(lambda delay: taped(hvd, second, 1000.0 * (rank + 1), delay))
    if before and rank == 0:
        other.get_concrete_function(delays[0])

    @tf.function
    def step(delays):
        return one(delays[0]), other(delays[1])

    for _ in range(STEPS):
        a, b = step(delays)
        check_taped(a, 1.0, size)
        check_taped(b, 1000.0, size)


def test_functions_of_one_name_and_other_gradients(hvd, rank, size, delays):
    """The ranks meet another plan of the key first: no disagreement."""

    def make(scale, shape):
        own = tf.Variable(tf.zeros(shape))

        @tf.function
        def update(delay):
            return taped(hvd, [own], scale * (rank + 1), delay)[0]

        return update

    critic, actor = make(1.0, [300]), make(10.0, [2, 5])

    @tf.function
    def step(delays):
        return critic(delays[0]), actor(delays[1])

    for _ in range(STEPS):
        a, b = step(delays)
        np.testing.assert_allclose(a, np.full([300], 1.0 * mean(size)))
        np.testing.assert_allclose(b, np.full([2, 5], 10.0 * mean(size)))


def test_a_loop_beside_other_code(hvd, rank, size, delays):
    inside, beside = variables(), variables()

    @tf.function
    def step(delays):
        sums = [tf.zeros([3 + i]) for i in range(4)]
        for n in tf.range(3):
            grads = taped(hvd, inside, tf.cast(n + 1, tf.float32) * (rank + 1.0), delays[0])
            sums = [a + b for a, b in zip(sums, grads)]
        return sums, taped(hvd, beside, 1000.0 * (rank + 1), delays[1])

    for _ in range(STEPS):
        sums, grads = step(delays)
        check_taped(sums, 1.0 + 2.0 + 3.0, size)
        check_taped(grads, 1000.0, size)


def test_branches_and_loops_that_call_one_function(hvd, rank, size, delays):
    own = variables()
    update = tf.function(lambda scale, delay: taped(hvd, own, scale * (rank + 1.0), delay))

    @tf.function
    def step(delays, first):
        chosen = tf.cond(
            first, lambda: update(tf.constant(3.0), delays[0]), lambda: update(tf.constant(5.0), delays[1])
        )
        sums = [tf.zeros([3 + i]) for i in range(4)]
        for _ in tf.range(2):
            sums = [a + b for a, b in zip(sums, update(tf.constant(7.0), delays[1]))]
        return chosen, sums, update(tf.constant(11.0), delays[0])

    for n in range(STEPS):
        chosen, sums, last = step(delays, tf.constant(n % 2 == 0))
        check_taped(chosen, 3.0 if n % 2 == 0 else 5.0, size)
        check_taped(sums, 14.0, size)
        check_taped(last, 11.0, size)


def test_calls_inside_of_calls(hvd, rank, size, delays):
    """More of them than one digit counts, by name; a call that rank 0 alone makes shifts TensorFlow's names there."""
    average = tf.function(lambda x, delay: hvd.allreduce(after_work(x, delay), op=hvd.Average))
    own_business = tf.function(
        lambda x: tf.raw_ops.EncodePng(image=tf.cast(x, tf.uint8) * tf.ones([2, 2, 1], tf.uint8))
    )

    @tf.function
    def pair(x, delays):
        return average(x, delays[0]), average(100.0 * x, delays[1])

    @tf.function
    def step(x, delays):
        if rank == 0:
            own_business(x)
        return [pair(x * (i + 1.0), delays) for i in range(6)]

    for n in range(3):
        for i, (a, b) in enumerate(step(tf.constant(rank + 1.0 + n), delays)):
            assert float(a) == pytest.approx((mean(size) + n) * (i + 1))
            assert float(b) == pytest.approx((mean(size) + n) * (i + 1) * 100)


@pytest.mark.parametrize("name", [None, "mine"])
def test_every_kind_by_name(hvd, rank, size, delays, name):
    """Also with names that the user has given, once outside and once inside."""

    def collect(x, delay):
        x = after_work(x, delay)
        return (
            hvd.allreduce(x, op=hvd.Sum, name=name and f"{name}.sum"),
            hvd.allgather(x[tf.newaxis], name=name and f"{name}.rows"),
            hvd.broadcast(x, size - 1, name=name and f"{name}.root"),
            hvd.alltoall(tf.fill([size], x), name=name and f"{name}.all"),
            hvd.reducescatter(tf.fill([size], x), op=hvd.Sum, name=name and f"{name}.mine"),
        )

    inner = tf.function(collect)

    @tf.function
    def step(x, delays):
        return inner(x, delays[0]), inner(100.0 * x, delays[1]), collect(10000.0 * x, delays[0])

    for n in range(3):
        for factor, (summed, rows, root, everybody, mine) in zip(
            (1.0, 100.0, 10000.0), step(tf.constant(rank + 1.0 + n), delays)
        ):
            values = np.array([r + 1.0 + n for r in range(size)]) * factor
            np.testing.assert_allclose(summed, values.sum())
            np.testing.assert_allclose(rows, values)
            np.testing.assert_allclose(root, values[-1])
            np.testing.assert_allclose(everybody, values)
            np.testing.assert_allclose(mine, [values.sum()])


def test_gradients_of_two_views(hvd, rank, size, delays):
    """SimCLR: an encoder that gathers, called for two views; the backward passes run at the same time too."""
    weight = tf.Variable([[2.0, 0.0], [0.0, 3.0]])
    encode = tf.function(lambda x, delay: hvd.allgather(after_work(tf.matmul(x, weight), delay)))

    @tf.function
    def step(one, two, delays):
        with tf.GradientTape() as tape:
            a, b = encode(one, delays[0]), encode(two, delays[1])
            loss = tf.reduce_sum(a) + 100.0 * tf.reduce_sum(b)
        return a, b, tape.gradient(loss, weight)

    views = np.arange(size * 2 * 3 * 2, dtype=np.float32).reshape(2, size, 3, 2)
    for _ in range(STEPS):
        a, b, grad = step(tf.constant(views[0, rank]), tf.constant(views[1, rank]), delays)
        np.testing.assert_allclose(a, views[0].reshape(-1, 2) @ weight.numpy())
        np.testing.assert_allclose(b, views[1].reshape(-1, 2) @ weight.numpy())
        own = views[0, rank].sum(0) + 100.0 * views[1, rank].sum(0)
        np.testing.assert_allclose(grad, np.stack([own, own], 1), rtol=1e-6)


def test_twin_critics_train_as_one_process_does(hvd, rank, size):
    """Wrapped optimizers and tapes side by side, against one process on the whole batch."""
    import smddp_tf.keras as hvd_keras

    def critics():
        keras.utils.set_random_seed(3)
        return [
            keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]) for _ in "ab"
        ]

    def make_update(model, optimizer, tape_of):
        @tf.function
        def update(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            grads = tape_of(tape).gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables))
            return loss

        return update

    def train(batch, tape_of, wrap):
        pair = critics()
        optimizers = [wrap(keras.optimizers.Adam(0.05)), wrap(keras.optimizers.Adam(0.05))]
        for model, optimizer in zip(pair, optimizers):
            optimizer.build(model.trainable_variables)
        updates = [make_update(model, optimizer, tape_of) for model, optimizer in zip(pair, optimizers)]

        @tf.function
        def step(x, y, z):
            return updates[0](x, y), updates[1](x, z)

        for n in range(20):
            x = np.random.default_rng(n).normal(size=(4 * size, 4)).astype(np.float32)[batch]
            step(tf.constant(x), tf.constant(x.sum(1, keepdims=True)), tf.constant(-3.0 * x.sum(1, keepdims=True)))
        return [v.numpy() for model in pair for v in model.trainable_variables]

    whole = train(slice(None), lambda tape: tape, lambda optimizer: optimizer)
    mine = slice(4 * rank, 4 * rank + 4)
    taped = train(mine, hvd.DistributedGradientTape, lambda optimizer: optimizer)
    wrapped = train(mine, lambda tape: tape, hvd_keras.DistributedOptimizer)
    for expected, a, b in zip(whole, taped, wrapped):
        np.testing.assert_allclose(a, expected, rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(b, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("times", [1, 2])
def test_a_function_that_stays_a_call_is_refused_where_it_is_used_twice(hvd, rank, size, times):
    own = variables()

    @tf.function(experimental_attributes={"_noinline": True})
    def update(scale):
        return taped(hvd, own, scale * (rank + 1.0), 1)

    @tf.function
    def step():
        return [update(tf.constant(2.0 + place)) for place in range(times)]

    if times == 1:
        return check_taped(step()[0], 2.0, size)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not inlined"):
        step()

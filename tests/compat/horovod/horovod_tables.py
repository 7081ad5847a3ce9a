"""Trains a table of each rank's own and a head that all share, with parts of Horovod's API replaced; see the cases.

Imported by horovod_clients.py when `init` has been called. What is expected is computed with NumPy from the data of all
ranks.
"""

import types

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import keras
import numpy as np
import pytest
import tensorflow as tf

RATE, STEPS, ROWS = 0.5, 3, 4
rank, size = hvd.rank(), hvd.size()


class Table(keras.layers.Layer):
    """Rows of this rank's own; a model-parallel part, as its variable says."""

    def build(self, input_shape):
        self.rows = self.add_weight(shape=(2,), initializer=keras.initializers.Constant(1.0 + rank))
        self.rows.is_local = True

    def call(self, x):
        return x * self.rows


def model_of_this_rank():
    model = keras.Sequential([keras.Input((2,)), Table(), keras.layers.Dense(1, use_bias=False)])
    model.layers[1].set_weights([np.array([[0.5], [-0.25]])])
    return model


def data_of(one):
    x = np.random.default_rng(one).normal(size=(STEPS * ROWS, 2))
    return x, x.sum(axis=1, keepdims=True) * 0.5 + one


def trained_by_numpy(scale=1.0, momentum=0.0):
    """The table of this rank and the head after `STEPS` steps of all ranks."""
    tables, head, speed = [np.full(2, 1.0 + one) for one in range(size)], np.array([[0.5], [-0.25]]), 0.0
    speeds = [0.0] * size
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        of_head = np.zeros_like(head)
        for one in range(size):
            x, y = (array[rows] for array in data_of(one))
            error = 2 * (x * tables[one] @ head - y) / ROWS
            of_head += scale * (x * tables[one]).T @ error / size
            speeds[one] = momentum * speeds[one] - RATE * (x * (error @ head.T)).sum(axis=0) / size * scale
        for one in range(size):
            tables[one] = tables[one] + speeds[one]
        speed = momentum * speed - RATE * of_head
        head = head + speed
    return [tables[rank], head]


def compare(got, expected):
    assert len(got) == len(expected)
    for mine, wanted in zip(got, expected):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=1e-6)


def hybrid_optimizer(plain, **arguments):
    """Registers local variables when gradients are first reduced, and asks for generic names."""
    optimizer = hvd_keras.DistributedOptimizer(plain, **arguments)
    calls = {"allreduce": 0, "grads": 0}

    def register_then_allreduce(self, grads, variables):
        calls["allreduce"] += 1
        if not self.has_registered:
            for variable in variables:
                if hasattr(variable, "is_local"):
                    self.register_local_var(variable)
            self.has_registered = True
        return self.raw_allreduce(grads, variables)

    def named_allreduce_grads(self, grads, variables):
        calls["grads"] += 1
        assert not [variable for variable in variables if hasattr(variable, "is_local")]
        return self.raw_allreduce_grads(grads, variables, use_generic_names=True)

    optimizer.has_registered = False
    optimizer.raw_allreduce, optimizer.raw_allreduce_grads = optimizer._allreduce, optimizer._allreduce_grads
    optimizer._allreduce = types.MethodType(register_then_allreduce, optimizer)
    optimizer._allreduce_grads = types.MethodType(named_allreduce_grads, optimizer)
    return optimizer, calls


def fit(model, optimizer, **more):
    x, y = data_of(rank)
    model.compile(optimizer, "mse", **{name: more.pop(name) for name in ("run_eagerly",) if name in more})
    model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0, **more)


def replaced_in_fit(plain, run_eagerly=False, momentum=0.0):
    model, (optimizer, calls) = model_of_this_rank(), hybrid_optimizer(plain)
    fit(model, optimizer, run_eagerly=run_eagerly)
    compare(model.get_weights(), trained_by_numpy(momentum=momentum))
    assert calls["allreduce"] == calls["grads"] > 0, calls


def replaced_in_a_loop():
    model, (optimizer, calls) = model_of_this_rank(), hybrid_optimizer(keras.optimizers.SGD(RATE))

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    loop(step)
    compare(model.get_weights(), trained_by_numpy())
    assert calls == {"allreduce": 1, "grads": 1}, calls


def loop(step):
    x, y = data_of(rank)
    for first in range(0, len(x), ROWS):
        step(tf.constant(x[first : first + ROWS], tf.float32), tf.constant(y[first : first + ROWS], tf.float32))


def replaced_by_another_reduction():
    """What takes the place of a method is used, and the original is not."""
    model, optimizer = model_of_this_rank(), hvd_keras.DistributedOptimizer(keras.optimizers.SGD(RATE))
    optimizer.register_local_var(model.layers[0].rows)
    optimizer._allreduce_grads = lambda grads, variables: [2 * hvd.allreduce(grad) for grad in grads]
    fit(model, optimizer)
    assert optimizer.iterations == STEPS
    _, head = trained_by_numpy()
    twice = [np.array(weight) for weight in model.get_weights()]
    assert np.abs(twice[1] - head).max() > 1e-2, "the original was used"
    gathered = hvd.allgather(twice[1].reshape(1, -1)).numpy()
    assert (gathered == gathered[0]).all(), gathered


def replaced_with_uneven_data():
    """Ranks that run out of data count as little as without the replacement."""
    x = np.random.default_rng(rank).normal(size=(ROWS * (1 + rank), 2))
    weights = []
    for optimizer in (
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(RATE)),
        hybrid_optimizer(keras.optimizers.SGD(RATE))[0],
    ):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(optimizer, "mse")
        model.fit(x, x.sum(axis=1, keepdims=True) * 3, batch_size=ROWS, shuffle=False, verbose=0)
        assert int(optimizer.iterations) == size
        weights.append([np.array(weight) for weight in model.get_weights()])
    assert np.abs(weights[0][0] - 1).max() > 0.1
    compare(*weights)


def infinity_in_a_local_gradient():
    """Only rank 0's table gets an infinite gradient; every rank must skip that step, although it is registered late."""
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=4.0)
    model, (optimizer, _) = model_of_this_rank(), hybrid_optimizer(scaled)
    variables = model.trainable_variables
    optimizer.build(variables)
    start = [np.array(weight) for weight in model.get_weights()]
    infinite = tf.constant([np.inf if rank == 0 else 1.0, 0.0], tf.float32)
    optimizer.apply([infinite, tf.ones([2, 1])], variables)
    compare(model.get_weights(), start)
    assert float(optimizer.dynamic_scale) == 2.0
    optimizer.apply([tf.ones([2]) * 2, tf.ones([2, 1]) * 2], variables)
    compare(model.get_weights(), [start[0] - RATE / size, start[1] - RATE])


def compute_gradients():
    model, optimizer = model_of_this_rank(), hvd_keras.DistributedOptimizer(keras.optimizers.SGD(RATE))
    optimizer.register_local_var(model.layers[0].rows)

    def step(x, y):
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        optimizer.apply_gradients(optimizer._compute_gradients(loss, var_list=variables, tape=tape))

    loop(step)
    compare(model.get_weights(), trained_by_numpy())
    shared = tf.Variable(1.0 + rank)
    [(grad, same)] = optimizer._compute_gradients(lambda: shared * shared, [shared])
    assert same is shared
    assert float(grad) == 2.0 * (1 + rank)
    with pytest.raises(ValueError, match="`tape` must be"):
        optimizer._compute_gradients(tf.constant(1.0), [shared])


def replaced_tape():
    model, optimizer = model_of_this_rank(), keras.optimizers.SGD(RATE)

    def gradient(self, target, sources, *args, **kwargs):
        kwargs["use_generic_names"] = True
        return self.raw_gradient(target, sources, *args, **kwargs)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=True)
        watched = {variable.ref() for variable in tape.watched_variables()}
        for variable in model.trainable_variables:
            if hasattr(variable, "is_local"):
                assert variable.value.ref() in watched
                tape.register_local_source(variable)
        tape.raw_gradient = tape.gradient
        tape.gradient = types.MethodType(gradient, tape)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))

    loop(step)
    compare(model.get_weights(), trained_by_numpy())


def replaced_callback():
    """`on_batch_end` that registers local variables when it is first called: they are not sent."""
    model, (optimizer, _) = model_of_this_rank(), hybrid_optimizer(keras.optimizers.SGD(RATE))
    model.layers[1].set_weights([np.array([[0.5], [-0.25]]) + rank])
    callback = hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)
    callback.has_registered = False

    def on_batch_end(self, batch, logs=None):
        if not self.has_registered:
            for variable in self.model.variables:
                if hasattr(variable, "is_local"):
                    self.register_local_var(variable)
            self.has_registered = True
        return self.raw_on_batch_end(batch, logs)

    callback.raw_on_batch_end = callback.on_batch_end
    callback.on_batch_end = types.MethodType(on_batch_end, callback)
    fit(model, optimizer, callbacks=[callback])
    table, head = (np.array(weight) for weight in model.get_weights())
    heads, tables = (hvd.allgather(array.reshape(1, -1)).numpy() for array in (head, table))
    assert (heads == heads[0]).all(), heads
    assert len({tuple(row) for row in tables}) == size, tables


cases = {
    "replaced in fit": lambda: replaced_in_fit(keras.optimizers.SGD(RATE)),
    "replaced in eager fit": lambda: replaced_in_fit(keras.optimizers.SGD(RATE), run_eagerly=True),
    "replaced, with momentum": lambda: replaced_in_fit(keras.optimizers.SGD(RATE, momentum=0.5), momentum=0.5),
    "replaced, loss scale": lambda: replaced_in_fit(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=8.0)
    ),
    "replaced in a loop": replaced_in_a_loop,
    "replaced by another reduction": replaced_by_another_reduction,
    "replaced, with uneven data": replaced_with_uneven_data,
    "infinity in a local gradient": infinity_in_a_local_gradient,
    "compute gradients": compute_gradients,
    "replaced tape": replaced_tape,
    "replaced callback": replaced_callback,
}

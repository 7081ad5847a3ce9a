"""Every kind of model and of training that Keras has, against one process that trains on the whole batch."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.roles.wrapping import reduces
from tests.support.early_variables import with_variables
from tests.support.keras_training import (
    FEATURES,
    ROWS_PER_RANK,
    dense_data,
    distance,
    flat_weights,
    part_of,
    skip_jit,
)
from tests.variants import FULL, in_full

STEPS = 6

pytestmark = [pytest.mark.ranks("2"), pytest.mark.filterwarnings("ignore:Gradients do not exist")]


def sgd(rate: float = 0.1) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(rate, momentum=0.9)


def functional() -> keras.Model:
    """Two inputs' worth of branches that share one layer, and so its variables."""
    inputs = keras.Input((FEATURES,))
    shared = keras.layers.Dense(4, activation="tanh")
    left = shared(keras.layers.Dense(4)(inputs))
    right = shared(keras.layers.Dense(4, activation="tanh")(inputs))
    return keras.Model(inputs, keras.layers.Dense(3)(keras.layers.concatenate([left, shared(left), right])))


def unbuilt() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])


class Subclassed(keras.Model):
    """Its unused layer has variables without gradients."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="tanh")
        self.unused = keras.layers.Dense(2)
        self.head = keras.layers.Dense(3)

    def build(self, shape):
        self.hidden.build(shape)
        self.unused.build(shape)
        self.head.build((*shape[:-1], 8))

    def call(self, inputs):
        return self.head(self.hidden(inputs))


class AppliesPairs(Subclassed):
    """A train step of one's own that calls `apply_gradients`."""

    def apply(self, grads):
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        self.apply(tape.gradient(loss, self.trainable_variables))
        return {"loss": loss}


class AppliesLists(AppliesPairs):
    """A train step of one's own that calls `optimizer.apply`."""

    def apply(self, grads):
        self.optimizer.apply(grads, self.trainable_variables)


def tied() -> keras.Model:
    """An autoencoder's trick: a layer that uses another layer's kernel."""

    class Transposed(keras.layers.Layer):
        def __init__(self, of):
            super().__init__()
            self.of = of

        def call(self, inputs):
            return keras.ops.matmul(inputs, keras.ops.transpose(self.of.kernel))

    inputs = keras.Input((FEATURES,))
    first = keras.layers.Dense(4)
    return keras.Model(inputs, keras.layers.Dense(3)(Transposed(first)(first(inputs))))


def frozen() -> keras.Model:
    model = functional()
    model.layers[2].trainable = False
    return model


def in_float64() -> keras.Model:
    return keras.Sequential([keras.Input((FEATURES,), dtype="float64"), keras.layers.Dense(3, dtype="float64")])


KINDS = {
    "functional": functional,
    "unbuilt": unbuilt,
    "subclassed, unused layer": Subclassed,
    "own train step, apply_gradients": AppliesPairs,
    "own train step, apply": AppliesLists,
    "tied weights": tied,
    "frozen layer": frozen,
    "float64": in_float64,
}


def made(kind: str) -> keras.Model:
    keras.utils.set_random_seed(11)
    return KINDS[kind]()


def train(model, optimizer, x, y, batch: int, epochs: int = 1, **options) -> np.ndarray:
    model.compile(optimizer, loss="mse", **options)
    if not reduces(optimizer):
        with_variables(model)
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, epochs=epochs)
    return flat_weights(model)


@functools.cache
def one_process(kind: str, size: int, epochs: int = 1) -> np.ndarray:
    x, y = dense_data(size, STEPS)
    return train(made(kind), sgd(), x, y, ROWS_PER_RANK * size, epochs)


def local_data(rank: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = dense_data(size, STEPS)
    return part_of(x, rank, size), part_of(y, rank, size)


def check(mpi, weights: np.ndarray, expected: np.ndarray, tolerance: float = 1e-6) -> None:
    assert distance(weights, expected) < tolerance
    assert all(np.array_equal(weights, theirs) for theirs in mpi.allgather(weights))


@pytest.mark.parametrize("kind", KINDS if FULL else list(KINDS)[::2])
def test_kinds_of_models(hvd, rank, size, mpi, kind):
    if size in (1, 3):
        pytest.skip("the kind of model and the number of ranks have nothing to do with each other")
    weights = train(made(kind), hvk.DistributedOptimizer(sgd()), *local_data(rank, size), ROWS_PER_RANK)
    check(mpi, weights, one_process(kind, size), 1e-14 if kind == "float64" else 1e-6)


# jit_compile: test_pipeline_compiled.py
@pytest.mark.parametrize(
    "options", [{"steps_per_execution": 4}, {"run_eagerly": True}, *in_full({"jit_compile": True})], ids=str
)
def test_options_of_compile(hvd, rank, size, mpi, options):
    skip_jit("jit_compile" in options, size)
    model, optimizer = made("functional"), hvk.DistributedOptimizer(sgd())
    weights = train(model, optimizer, *local_data(rank, size), ROWS_PER_RANK, **options)
    check(mpi, weights, one_process("functional", size))


def test_train_on_batch(hvd, rank, size, mpi):
    model = made("functional")
    model.compile(hvk.DistributedOptimizer(sgd()), loss="mse")
    x, y = local_data(rank, size)
    for first in range(0, len(x), ROWS_PER_RANK):
        model.train_on_batch(x[first : first + ROWS_PER_RANK], y[first : first + ROWS_PER_RANK])
    check(mpi, flat_weights(model), one_process("functional", size))


def test_fit_twice_and_two_models_by_turns(hvd, rank, size, mpi):
    """Each `fit` of each model is as if it were alone; the third has a new optimizer's worth of plans in its step."""
    data = local_data(rank, size)
    models = [made("functional"), made("unbuilt")]
    for model in models:
        model.compile(hvk.DistributedOptimizer(sgd()), loss="mse")
    for model in (models[0], models[1], models[0], models[1]):
        model.fit(*data, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    for model, kind in zip(models, ("functional", "unbuilt")):
        check(mpi, flat_weights(model), one_process(kind, size, epochs=2))


class Gan(keras.Model):
    """Two models and two optimizers in one step; the second uses what the first has updated."""

    def __init__(self, first, second):
        super().__init__()
        self.generator = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(3, activation="tanh")])
        self.critic = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
        self.first, self.second = first, second

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.critic(y) - self.critic(self.generator(x)))
        of_critic = self.critic.trainable_variables
        self.first.apply_gradients(zip(tape.gradient(loss, of_critic), of_critic))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.critic(self.generator(x)))
        of_generator = self.generator.trainable_variables
        self.second.apply(tape.gradient(loss, of_generator), of_generator)
        return {"loss": loss}

    def call(self, inputs):
        return self.critic(self.generator(inputs))


def trained_gan(x, y, batch, wrap, jit=False) -> np.ndarray:
    keras.utils.set_random_seed(11)
    optimizers = [wrap(keras.optimizers.SGD(0.05, momentum=0.5)), wrap(keras.optimizers.SGD(0.1, clipnorm=0.05))]
    model = Gan(*optimizers)
    model.compile(jit_compile=jit)
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    return flat_weights(model)


@pytest.mark.parametrize("jit", [True, *in_full(False)])  # two plans in a graph: test_pipeline.py
def test_a_gan(hvd, rank, size, mpi, jit):
    skip_jit(jit, size)
    expected = trained_gan(*dense_data(size, STEPS), ROWS_PER_RANK * size, lambda optimizer: optimizer)
    check(mpi, trained_gan(*local_data(rank, size), ROWS_PER_RANK, hvk.DistributedOptimizer, jit), expected)


class Freeze(keras.callbacks.Callback):
    """Freezes the first layer in the middle of `fit`. In eager mode that has an effect at once."""

    def on_train_batch_begin(self, batch, logs=None):
        self.model.layers[0].trainable = batch < STEPS // 2


def freezing(recompile: bool, wrap, x, y, batch: int) -> np.ndarray:
    model = made("unbuilt")
    if not recompile:
        model.compile(wrap(sgd()), loss="mse", run_eagerly=True)
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=[Freeze()])
        return flat_weights(model)
    for trainable in (True, False, True):
        model.layers[0].trainable = trainable
        train(model, wrap(sgd()), x, y, batch)
    return flat_weights(model)


@pytest.mark.parametrize("recompile", [False, *in_full(True)])
def test_trainability_changes(hvd, rank, size, mpi, recompile):
    expected = freezing(recompile, lambda optimizer: optimizer, *dense_data(size, STEPS), ROWS_PER_RANK * size)
    check(mpi, freezing(recompile, hvk.DistributedOptimizer, *local_data(rank, size), ROWS_PER_RANK), expected)


@pytest.mark.parametrize("passes", [1, 2])
def test_other_variables_in_a_loop(hvd, rank, size, passes):
    """One optimizer, first for all variables, then for one of them: two traces, two plans."""
    both = [keras.Variable([0.0]), keras.Variable([0.0, 0.0])]
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=passes)
    optimizer.build(both)

    @tf.function
    def step(count):
        grads = [tf.fill(variable.shape, rank + 1.0) for variable in both]
        optimizer.apply(grads[:count], both[:count])

    for count in (2, 2, 1, 1, 2, 2):
        step(count)
    mean = (size + 1) / 2
    np.testing.assert_allclose(both[0], [-6 * mean])
    np.testing.assert_allclose(both[1], [-4 * mean] * 2)

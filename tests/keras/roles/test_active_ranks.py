"""`fit` with different numbers of batches on each rank, with what optimizers and models can do."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.keras_training import FEATURES, dense_model, distance, flat_weights, same_on_all_ranks
from tests.support.uneven_data import (
    BATCH,
    EPOCHS,
    adam,
    batches_of,
    compiled,
    data_of,
    dataset_of,
    train_in_windows,
    train_jointly,
)

pytestmark = [pytest.mark.ranks("2"), pytest.mark.usefixtures("several_ranks")]


def logarithm_model() -> keras.Model:
    """Its gradients are NaN for a batch of zeros."""
    model = dense_model()
    inputs = keras.Input((FEATURES,))
    return keras.Model(inputs, model(keras.ops.log(keras.ops.square(inputs))))


@pytest.mark.parametrize("case", ["nan", "eager", "sum", "fp16 wire"])
def test_other_ways_to_reduce(hvd, rank, size, mpi, case):
    make = logarithm_model if case == "nan" else dense_model
    model, options = make(), {}
    if case == "sum":
        options = {"op": hvk.Sum}
    if case == "fp16 wire":
        options = {"compression": hvk.Compression.fp16}
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.05), **options)
    model.compile(optimizer, loss="mse", run_eagerly=case == "eager")
    model.fit(*data_of(rank), batch_size=BATCH, shuffle=False, verbose=0)
    ranks = [batches_of(other) for other in range(size)]
    expected = train_jointly(make(), keras.optimizers.SGD(0.05), [ranks], add_up=case == "sum")
    assert distance(flat_weights(model), expected) < (1e-3 if case == "fp16 wire" else 1e-6)
    assert same_on_all_ranks(mpi, model)


@pytest.mark.parametrize("kind", ["of keras", "of ours", "with a loss scale"])
def test_passes_count_where_they_were_fed(hvd, rank, size, mpi, kind):
    """An update for two steps: a rank may run out between them. The numbers of steps are odd in each epoch."""
    passes = {"gradient_accumulation_steps": 2} if kind != "of ours" else {}
    optimizer = keras.optimizers.SGD(0.05, momentum=0.5, **passes)
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True} if kind == "of ours" else {}
    optimizer = hvk.DistributedOptimizer(optimizer, **options)
    if kind == "with a loss scale":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=16.0)
    model = dense_model()
    model.compile(optimizer, loss="mse")
    model.fit(dataset_of(rank, known=kind != "of ours"), epochs=EPOCHS, verbose=0)
    ranks = [batches_of(other) for other in range(size)]
    expected = train_in_windows(dense_model(), keras.optimizers.SGD(0.05, momentum=0.5), [ranks] * EPOCHS, 2)
    assert distance(flat_weights(model), expected) < 1e-6
    assert all(np.array_equal(flat_weights(model), theirs) for theirs in mpi.allgather(flat_weights(model)))


def test_steps_compiled_by_xla(hvd, rank, size, mpi):
    """In calls of two steps, the last of which has no active rank."""
    model = compiled(dense_model(), adam(), jit_compile=True, steps_per_execution=2)
    model.fit(dataset_of(rank, known=False), verbose=0)
    ranks = [batches_of(other) for other in range(size)]
    assert distance(flat_weights(model), train_jointly(dense_model(), adam(), [ranks])) < 1e-6
    assert same_on_all_ranks(mpi, model)


def test_rows_of_an_embedding(hvd, rank, size, mpi):
    def build():
        keras.utils.set_random_seed(3)
        return keras.Sequential(
            [keras.Input((2,), dtype="int32"), keras.layers.Embedding(9, 3), keras.layers.Flatten()]
        )

    def data(rank):
        random = np.random.default_rng(rank)
        rows = (2 + rank) * BATCH
        return random.integers(0, 9, (rows, 2)).astype(np.int32), random.normal(size=(rows, 6)).astype(np.float32)

    model = compiled(build(), keras.optimizers.SGD(0.5))
    model.fit(*data(rank), batch_size=BATCH, shuffle=False, verbose=0, epochs=EPOCHS)
    ranks = [[(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)] for x, y in map(data, range(size))]
    assert distance(flat_weights(model), train_jointly(build(), keras.optimizers.SGD(0.5), [ranks] * EPOCHS)) < 1e-6
    assert same_on_all_ranks(mpi, model)


class Pair(keras.Model):
    """Two models in one step, each with an optimizer of its own, as a GAN has."""

    def __init__(self):
        super().__init__()
        self.parts = [dense_model(), dense_model()]
        self.optimizers = [hvk.DistributedOptimizer(keras.optimizers.SGD(rate)) for rate in (0.05, 0.2)]

    def train_step(self, data):
        x, y = data
        for part, optimizer in zip(self.parts, self.optimizers):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(part(x, training=True) - y))
            optimizer.apply(tape.gradient(loss, part.trainable_variables), part.trainable_variables)
        return {"loss": loss}

    def call(self, inputs):
        return self.parts[0](inputs) + self.parts[1](inputs)


def test_two_optimizers_in_one_step(hvd, rank, size, mpi):
    model = Pair()
    model.compile()
    model.fit(*data_of(rank), batch_size=BATCH, shuffle=False, verbose=0)
    ranks = [batches_of(other) for other in range(size)]
    for part, rate in zip(model.parts, (0.05, 0.2)):
        assert distance(flat_weights(part), train_jointly(dense_model(), keras.optimizers.SGD(rate), [ranks])) < 1e-6
        assert all(np.array_equal(flat_weights(part), theirs) for theirs in mpi.allgather(flat_weights(part)))


def test_mixed_precision(hvd, rank, size, mpi):
    """The finite check comes after the reduction, and a step without an active rank changes nothing."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(8, dtype="mixed_float16"), keras.layers.Dense(3, dtype="float32")]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(hvk.DistributedOptimizer(adam()), initial_scale=256.0)
    model.compile(optimizer, loss="mse", steps_per_execution=2)
    before = flat_weights(model)
    model.fit(*data_of(rank), batch_size=BATCH, shuffle=False, verbose=0)
    assert same_on_all_ranks(mpi, model)
    assert int(optimizer.inner_optimizer.iterations.numpy()) == len(batches_of(size - 1))
    assert distance(flat_weights(model), before) > 1e-3

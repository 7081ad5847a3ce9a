"""Training with jit_compile=True against one process on the whole batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.keras_training import (
    OPTIMIZERS,
    ROWS_PER_RANK,
    dense_data,
    dense_model,
    distance,
    embedding_model,
    flat_weights,
    one_process,
    part_of,
    same_on_all_ranks,
    word_data,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")


@pytest.fixture(autouse=True)
def only_where_it_tells_something_new(size, request):
    """To compile takes seconds. Two ranks show everything; four on two nodes train with each optimizer once more."""
    if size == 2 or (size == 4 and request.function is test_fit):
        return
    pytest.skip("compiled training is tested with 2 ranks, and on 2 nodes with 4")


def fit(model, optimizer, x, y, rank, size, **arguments) -> np.ndarray:
    model.compile(hvk.DistributedOptimizer(optimizer), loss="mse", **arguments)
    local_x, local_y = part_of(x, rank, size), part_of(y, rank, size)
    model.fit(local_x, local_y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    return flat_weights(model)


# sgd_accumulation: test_accumulation.py
@pytest.mark.parametrize("name", ["adamw_clipnorm", *in_full("sgd_accumulation", "sgd_momentum", "adam")])
def test_fit(hvd, rank, size, mpi, name):
    if size == 4 and name == "sgd_accumulation":
        pytest.skip("nothing that 2 ranks do not show")
    model = dense_model()
    weights = fit(model, OPTIMIZERS[name](), *dense_data(size), rank, size, jit_compile=True)
    assert model.jit_compile
    assert distance(weights, one_process(name, size)) < 1e-6
    assert same_on_all_ranks(mpi, weights)


def test_several_steps_per_execution(hvd, rank, size):
    weights = fit(
        dense_model(), OPTIMIZERS["adam"](), *dense_data(size), rank, size, jit_compile=True, steps_per_execution=2
    )
    assert distance(weights, one_process("adam", size)) < 1e-6


def test_compiled_and_plain_models_by_turns(hvd, rank, size):
    """Two models in one program, one of them compiled, a batch each at a time."""
    x, y = dense_data(size)
    local_x, local_y = part_of(x, rank, size), part_of(y, rank, size)
    models = [dense_model(), dense_model()]
    for model, jit in zip(models, (True, False)):
        model.compile(hvk.DistributedOptimizer(OPTIMIZERS["sgd_momentum"]()), loss="mse", jit_compile=jit)
    for first in range(0, len(local_x), ROWS_PER_RANK):
        batch = slice(first, first + ROWS_PER_RANK)
        for model in models:
            model.train_on_batch(local_x[batch], local_y[batch])
    for model in models:
        assert distance(flat_weights(model), one_process("sgd_momentum", size)) < 1e-6


def test_a_loop_with_a_tape(hvd, rank, size):
    x, y = dense_data(size)
    model, optimizer = dense_model(), OPTIMIZERS["adamw_clipnorm"]()
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=True)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    local_x, local_y = part_of(x, rank, size), part_of(y, rank, size)
    for first in range(0, len(local_x), ROWS_PER_RANK):
        batch = slice(first, first + ROWS_PER_RANK)
        step(tf.constant(local_x[batch]), tf.constant(local_y[batch]))
    assert distance(flat_weights(model), one_process("adamw_clipnorm", size)) < 1e-6


def test_embedding(hvd, rank, size):
    """XLA must know shapes, so whole tables are reduced."""
    x, y = word_data(size)
    weights = fit(embedding_model(), OPTIMIZERS["adam"](), x, y, rank, size, jit_compile=True)
    assert distance(weights, one_process("adam", size, words=True, densify=True)) < 1e-6


def test_mixed_float16_skips_the_step_with_an_infinity_on_one_rank(hvd, rank, size, mpi):
    """The optimizer's work is in a branch of the compiled step, behind the finite check."""
    x, y = dense_data(size, steps=4)
    x = x.copy()
    x[2 * size * ROWS_PER_RANK - 1] = np.inf  # the last rank's second batch
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = dense_model()
    finally:
        keras.config.set_dtype_policy("float32")
    weights = fit(model, keras.optimizers.SGD(0.1), x, y, rank, size, jit_compile=True)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert int(model.optimizer.inner_optimizer.iterations.numpy()) == 3
    assert np.isfinite(weights).all()
    assert same_on_all_ranks(mpi, weights)

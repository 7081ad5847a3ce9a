"""Small Keras models, data cut into ranks, and the same training done by one process: the oracle of the Keras tests."""

from __future__ import annotations

import functools
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import loader
from smddp_tf.keras.roles.wrapping import reduces

STEPS = 30
ROWS_PER_RANK = 4
FEATURES = 6
WORDS = 11

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "sgd_momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw_clipnorm": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.05, clipnorm=0.02),
    "sgd_global_clipnorm": lambda: keras.optimizers.SGD(0.2, global_clipnorm=0.05),
    "sgd_clipvalue": lambda: keras.optimizers.SGD(0.2, momentum=0.5, nesterov=True, clipvalue=0.01),
    "adam_ema": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.005, momentum=0.5),
    "sgd_accumulation": lambda: keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=3),
}


def skip_jit(jit: bool, size: int) -> None:
    """XLA takes seconds to compile a step, and a number of ranks more or less makes no difference to it."""
    if jit and not (loader.op_folder() / loader._XLA_LIBRARY).exists():
        pytest.skip("built without the ops for functions that XLA compiles")
    if jit and size in (1, 3):
        pytest.skip("what XLA compiles is tested on 2 and 4 ranks")


def dense_model() -> keras.Model:
    """The same initial weights at every call and on every rank."""
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, name="head")]
    )


def embedding_model() -> keras.Model:
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(WORDS, 4),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3),
        ]
    )


def dense_data(size: int, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    """The whole batches of `size` ranks, one after the other."""
    random = np.random.default_rng(3)
    x = random.normal(size=(steps * size * ROWS_PER_RANK, FEATURES)).astype(np.float32)
    y = np.tanh(x[:, :3] * [1.0, -2.0, 0.5] + x[:, 3:]).astype(np.float32)
    return x, y


def word_data(size: int, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    rows = steps * size * ROWS_PER_RANK
    x = random.integers(0, WORDS, size=(rows, 5)).astype(np.int32)
    return x, random.normal(size=(rows, 3)).astype(np.float32)


def part_of(array: np.ndarray, rank: int, size: int) -> np.ndarray:
    """This rank's rows of every whole batch."""
    batches = array.reshape(-1, size, ROWS_PER_RANK, *array.shape[1:])
    return batches[:, rank].reshape(-1, *array.shape[1:])


def compiled_step(model: keras.Model, optimizer: keras.optimizers.Optimizer, densify: bool = False) -> Callable:
    """A train step of one's own: tape, `optimizer.apply`, all in one `tf.function`.

    With `densify` the optimizer sees dense tensors instead of IndexedSlices, which Keras treats differently.
    """

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        grads = tape.gradient(loss, model.trainable_variables)
        if densify:
            grads = [tf.convert_to_tensor(grad) for grad in grads]
        optimizer.apply(grads, model.trainable_variables)
        return loss

    return step


def train_in_loop(model, optimizer, x: np.ndarray, y: np.ndarray, batch: int, densify: bool = False) -> np.ndarray:
    if not reduces(optimizer):
        optimizer.build(model.trainable_variables)  # as in tests/support/early_variables.py
    step = compiled_step(model, optimizer, densify)
    for first in range(0, len(x), batch):
        step(tf.constant(x[first : first + batch]), tf.constant(y[first : first + batch]))
    return flat_weights(model)


@functools.cache
def one_process(optimizer: str, size: int, words: bool = False, densify: bool = False) -> np.ndarray:
    """The weights after training on the whole batches with the plain optimizer."""
    model = embedding_model() if words else dense_model()
    x, y = word_data(size) if words else dense_data(size)
    return train_in_loop(model, OPTIMIZERS[optimizer](), x, y, ROWS_PER_RANK * size, densify)


def flat_weights(model: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(weight) for weight in model.get_weights()])


def distance(got: np.ndarray, expected: np.ndarray) -> float:
    """The norm of the difference, relative to the norm of what is expected."""
    difference = got.astype(np.float64) - expected.astype(np.float64)
    return float(np.linalg.norm(difference) / np.linalg.norm(expected.astype(np.float64)))


def same_on_all_ranks(mpi, of: keras.Model | np.ndarray | list[np.ndarray]) -> bool:
    """Equal bits on all ranks: an array, a list of arrays, or what a model trains and its optimizer keeps."""
    if isinstance(of, keras.Model):
        of = [variable.numpy() for variable in (*of.trainable_variables, *of.optimizer.variables)]
    mine = of if isinstance(of, list) else [of]
    return all(
        len(theirs) == len(mine) and all(np.array_equal(a, b) for a, b in zip(mine, theirs))
        for theirs in mpi.allgather(mine)
    )

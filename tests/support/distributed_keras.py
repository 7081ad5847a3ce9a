"""A small problem, its training by one process, and the same under `keras.distribution`."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras.distribution  # noqa: F401
from tests.support.early_variables import with_variables

FEATURES = 5
ROWS, BATCH = 70, 16  # the last batch has 6 rows, which 4 ranks do not divide
VALIDATION = 13

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adamw": lambda: keras.optimizers.AdamW(1e-2),
    "ema": lambda: keras.optimizers.Adam(1e-2, use_ema=True, ema_overwrite_frequency=3),
    "clipnorm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1),
    "accumulation": lambda: keras.optimizers.Adam(1e-2, gradient_accumulation_steps=2),
}


def samples(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """The same on every rank; the labels depend on all features and on chance."""
    random = np.random.default_rng(11)
    x = random.normal(size=(rows, FEATURES)).astype(np.float32)
    noise = 0.3 * random.normal(size=(rows, 1))
    return x, (x @ random.normal(size=(FEATURES, 1)) + noise > 0).astype(np.float32)


class Batches(keras.utils.PyDataset):
    """A PyDataset of global batches."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        super().__init__()
        self._x, self._y = x, y

    def __len__(self) -> int:
        return -(-len(self._x) // BATCH)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return self._x[rows], self._y[rows]


class Recording(keras.Model):
    """A dense layer, compiled to run eagerly, which tells `record` the rows of each batch before it trains on them."""

    def __init__(self, record: Callable[[np.ndarray], None]) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self._record = record
        self.compile("sgd", "mse", run_eagerly=True)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        self._record(data[0].numpy().ravel())
        return super().train_step(data)


def as_generator(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    while True:
        batches = Batches(x, y)
        yield from (batches[index] for index in range(len(batches)))


def arguments(kind: str, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The data as arguments of `fit` or `evaluate`, always the same global batches in the same order."""
    if kind == "arrays":
        return {"x": x, "y": y, "batch_size": BATCH}
    if kind == "tf.data":
        return {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)}
    if kind == "PyDataset":
        return {"x": Batches(x, y)}
    needs_generators()
    return {"x": as_generator(x, y), "steps_per_epoch": -(-len(x) // BATCH)}


def model(optimizer: Any, metrics: Sequence[str] = ("AUC", "accuracy"), **options: Any) -> keras.Model:
    """The same initial weights at every call and on every rank."""
    keras.utils.set_random_seed(5)
    made = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    made.compile(optimizer, "binary_crossentropy", metrics=list(metrics), **options)
    return with_variables(made, samples(1)) if keras.distribution.distribution() is None else made


def needs_generators() -> None:
    """Skips the test where Keras cannot train on generators: 3.3 iterates over a function instead."""
    if keras.__version__.startswith("3.3."):
        pytest.skip(f"Keras {keras.__version__} does not train on generators")


def weights(of: keras.Model) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in of.get_weights()])


@contextlib.contextmanager
def distributed(**options: Any) -> Iterator[Any]:
    """Inside, there is a DataParallel."""
    parameters = inspect.signature(keras.distribution.DataParallel.__init__).parameters
    if missing := [name for name in options if name not in parameters and "kwargs" not in parameters]:
        pytest.skip(f"DataParallel of Keras {keras.__version__} has no {missing[0]}")
    keras.distribution.initialize()
    distribution = keras.distribution.DataParallel(**options)
    with distribution.scope():
        yield distribution


def same_on_all(mpi, values: np.ndarray) -> bool:
    return all(np.array_equal(theirs, values) for theirs in mpi.allgather(values))


class Centred(keras.layers.Layer):
    """A layer with states of its own: a moving mean, and a counter."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        if training:
            self.mean.assign(0.5 * self.mean + 0.5 * keras.ops.mean(inputs, axis=0))
            self.calls.assign_add(1)
        return inputs - self.mean


def with_statistics():
    """A model, and a part of it that has no optimizer."""
    keras.utils.set_random_seed(5)
    inputs = keras.Input((FEATURES,))
    normalized = keras.layers.BatchNormalization(momentum=0.5)(Centred()(inputs))
    made = keras.Model(inputs, keras.layers.Dense(1)(normalized))
    made.compile(keras.optimizers.SGD(0.01), "mse")
    return made, keras.Model(inputs, normalized)

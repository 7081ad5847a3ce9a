"""Data of different lengths on each rank, and one process that trains on all of it: the oracle of the uneven tests."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.early_variables import with_variables
from tests.support.keras_training import FEATURES, flat_weights

BATCH = 4
EPOCHS = 2


def rows_of(rank: int) -> int:
    """Rank 0 has three batches, the last one short; every later rank has two more."""
    return (3 + 2 * rank) * BATCH - 1


def data_of(rank: int, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(50 + rank)
    rows = rows_of(rank) if rows is None else rows
    x = random.normal(size=(rows, FEATURES)).astype(np.float32)
    return x, np.tanh(x[:, :3] - 2 * x[:, 3:]).astype(np.float32)


def batches_of(rank: int, rows: int | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    x, y = data_of(rank, rows)
    return [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)]


def compiled(model, optimizer, **options):
    model.compile(hvk.DistributedOptimizer(optimizer), loss="mse", **options)
    return with_variables(model)


def adam() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01)


def dataset_of(rank: int, rows: int | None = None, known: bool = True) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(data_of(rank, rows)).batch(BATCH)
    return dataset if known else dataset.filter(lambda x, y: True)


def train_jointly(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, epochs: list[list[list]], add_up: bool = False
) -> np.ndarray:
    """The weights after a loop in which each step averages the gradients of the ranks that still have a batch.

    Args:
        epochs: for each epoch, for each rank, its batches.
        add_up: the sum in place of the average.
    """

    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        return tape.gradient(loss, model.trainable_variables)

    for ranks in epochs:
        for step in range(max(map(len, ranks))):
            active = [gradients(*batches[step]) for batches in ranks if step < len(batches)]
            divisor = 1 if add_up else len(active)
            optimizer.apply([_total(grads, divisor) for grads in zip(*active)], model.trainable_variables)
    return flat_weights(model)


def _total(grads, divisor: int):
    """Dense: with slices Keras would square the rows of an index one by one, not their sum."""
    return sum(tf.convert_to_tensor(grad) for grad in grads) / divisor


def train_in_windows(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, epochs: list, passes: int
) -> np.ndarray:
    """The same with one update for every `passes` steps: the mean over all batches that they had."""
    steps = [
        [batches[step] for batches in ranks if step < len(batches)]
        for ranks in epochs
        for step in range(max(map(len, ranks)))
    ]
    windows = [list(itertools.chain(*steps[i : i + passes])) for i in range(0, len(steps) - passes + 1, passes)]
    return train_jointly(model, optimizer, [[[batch] for batch in window] for window in windows])


class Steps(keras.callbacks.Callback):
    """Counts the batches that callbacks see, by epoch."""

    def on_train_begin(self, logs=None):
        self.epochs = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append(0)

    def on_train_batch_end(self, batch, logs=None):
        self.epochs[-1] += 1

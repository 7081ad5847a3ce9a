"""A `fit` that tells which batches it has trained on."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.dealt_data import ITEMS
from tests.support.early_variables import with_variables


class Batches(keras.utils.PyDataset):
    """ITEMS batches of two rows; the number of the batch is in its targets."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.epochs = 0

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        return np.full((2, 6), 0.1 * index, np.float32), np.full((2, 3), float(index), np.float32)

    def on_epoch_end(self):
        self.epochs += 1


class Probe(keras.Sequential):
    """A model that remembers the first target of each batch it trains on."""

    def train_step(self, data):
        self.add_seen(data[1][0, 0])
        return super().train_step(data)

    def add_seen(self, number):
        tf.py_function(lambda value: self.seen[-1].append(int(value)), [number], [])


class Epochs(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        object.__setattr__(self.model, "seen", [])

    def on_epoch_begin(self, epoch, logs=None):
        self.model.seen.append([])


def seen_in_fit(
    dataset, *callbacks, epochs: int = 3, wrap=hvk.DistributedOptimizer, probe=Probe, **options
) -> list[list[int]]:
    keras.utils.set_random_seed(7)
    model = probe([keras.Input((6,)), keras.layers.Dense(3)])
    model.compile(wrap(keras.optimizers.SGD(0.0)), loss="mse")
    with_variables(model).fit(
        dataset, epochs=epochs, verbose=0, shuffle=False, callbacks=[Epochs(), *callbacks], **options
    )
    return model.seen

"""Models that differ on every rank, a short `fit`, and callbacks that remember what they see."""

from __future__ import annotations

import keras
import numpy as np

ROWS = 8


class AtFirstBatch(keras.callbacks.Callback):
    """Remembers the variables just before the first batch."""

    def on_train_begin(self, logs=None):
        self.seen = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.seen is None:
            self.seen = values_of(self.model)


def values_of(model) -> list[np.ndarray]:
    return [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]


def layers_with_state() -> list[keras.layers.Layer]:
    return [keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(2)]


def model_of_rank(rank: int, built: bool = True) -> keras.Model:
    """Other weights, statistics and seeds on every rank."""
    keras.utils.set_random_seed(100 + rank)
    model = keras.Sequential([keras.Input((3,)), *layers_with_state()] if built else layers_with_state())
    if built:
        model.layers[1].moving_mean.assign([float(rank)] * 4)
    return model


def fit(model, rank: int, *more, epochs: int = 1, **options):
    random = np.random.default_rng(rank)
    x, y = random.normal(size=(ROWS, 3)).astype(np.float32), random.normal(size=(ROWS, 2)).astype(np.float32)
    return model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=list(more), **options)


class LogsSeen(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.logs = dict(logs)

"""A short `fit` on batches one of which takes a given time to come, with other samples on each rank."""

from __future__ import annotations

import time

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.keras_training import FEATURES, dense_model

ROWS = 4


def batches(rank: int, count: int, pause: float = 0.0) -> tf.data.Dataset:
    """Of 4 rows, one less on odd ranks; the last but one takes `pause` seconds to come."""
    rows = ROWS - rank % 2
    x = np.random.default_rng(rank).normal(size=(count, rows, FEATURES)).astype("float32")

    def generate():
        for number, batch in enumerate(x):
            time.sleep(pause if number == count - 2 else 0.0)
            yield batch, batch[:, :3]

    spec = (tf.TensorSpec([None, FEATURES]), tf.TensorSpec([None, 3]))
    return tf.data.Dataset.from_generator(generate, output_signature=spec)


def fit(data, *callbacks, epochs: int = 2, jit: bool = False, steps_per_execution: int = 1, **more):
    model = dense_model()
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer, "mse", jit_compile=jit, steps_per_execution=steps_per_execution)
    return model.fit(data, epochs=epochs, verbose=0, callbacks=list(callbacks), **more)

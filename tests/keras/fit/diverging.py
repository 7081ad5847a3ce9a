"""Short `fit`s of ranks that may diverge, with data of each rank's own."""

from __future__ import annotations

import keras

import smddp_tf.keras as hvk
from tests.support.early_variables import with_variables
from tests.support.keras_training import dense_model
from tests.support.uneven_data import BATCH, data_of

ROWS = 24


def compiled(optimizer=None, model=None):
    model = model or dense_model()
    model.compile(hvk.DistributedOptimizer(optimizer or keras.optimizers.SGD(0.01)), loss="mse")
    return with_variables(model)


def fit(model, rank, *callbacks, epochs=3, data=None, **options):
    x, y = data or data_of(rank, ROWS)
    return model.fit(
        x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks), **options
    )

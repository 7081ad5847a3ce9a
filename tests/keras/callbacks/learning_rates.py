"""What the tests of the learning rate callbacks share: a short `fit`, and the rates and momenta seen in it."""

from __future__ import annotations

import keras
import numpy as np

from tests.support.one_weight import X, Y, one_weight_model

STEPS_PER_EPOCH = 4


class Rates(keras.callbacks.Callback):
    """Remembers the rate that each batch is trained with."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(float(self.model.optimizer.learning_rate.numpy()))


def fit(optimizer, *callbacks, epochs=1, **options):
    rates = Rates()
    model = one_weight_model(optimizer)
    rows = 2 * STEPS_PER_EPOCH
    x, y = np.full((rows, 1), X, np.float32), np.full((rows, 1), Y, np.float32)
    history = model.fit(
        x, y, batch_size=2, epochs=epochs, verbose=0, shuffle=False, callbacks=[*callbacks, rates], **options
    )
    return rates.seen, history.history, float(model.get_weights()[0][0, 0])

"""A small classifier whose metrics are compared between ranks and one process."""

from __future__ import annotations

from typing import Any

import keras

FEATURES = 4


class Largest(keras.metrics.Metric):
    """A state that is no sum."""

    def __init__(self, name="largest", **options):
        super().__init__(name=name, **options)
        self.largest = self.add_variable((), "zeros", name="largest")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_pred)))

    def result(self):
        return self.largest.value


class MergedLargest(Largest):
    """The same, which knows how to take over the state of others."""

    def merge_state(self, metrics):
        self.largest.assign(max(float(metric.largest.numpy()) for metric in (self, *metrics)))


def classifier(metrics: list, **options: Any) -> keras.Model:
    """Equal weights each time.

    Args:
        options: of `compile`.
    """
    keras.utils.set_random_seed(11)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(loss="binary_crossentropy", metrics=metrics, **options)
    return model

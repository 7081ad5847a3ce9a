"""A model of one weight, whose training can be computed by hand."""

from __future__ import annotations

from typing import Any

import keras

from tests.support.early_variables import with_variables

X, Y = 1.5, 2.0


def one_weight_model(optimizer: Any) -> keras.Model:
    """loss = (w * X - Y)^2 with w = 0 at the start."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(optimizer, loss="mse")
    return with_variables(model)

"""What is asked of any Keras optimizer, with those of Keras themselves."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from smddp_tf.keras.roles.optimizers import being_accumulated, innermost, iterations_of


def test_the_innermost_optimizer_updates_the_weights() -> None:
    inner = keras.optimizers.SGD()
    scaled = keras.optimizers.LossScaleOptimizer(inner)
    assert innermost(scaled) is inner
    assert innermost(inner) is inner


def test_sums_of_gradients_and_calls_of_an_optimizer_that_accumulates() -> None:
    weight = keras.Variable([1.0, 2.0])
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=3)
    assert being_accumulated(optimizer) == []  # it is not built yet
    for gradient in (3.0, 4.0):
        optimizer.apply([tf.fill([2], gradient)], [weight])
    (sums,) = being_accumulated(keras.optimizers.LossScaleOptimizer(optimizer))
    np.testing.assert_array_equal(sums, [7.0, 7.0])
    assert int(iterations_of(optimizer).numpy()) == 2  # calls, not updates
    assert being_accumulated(keras.optimizers.SGD()) == []

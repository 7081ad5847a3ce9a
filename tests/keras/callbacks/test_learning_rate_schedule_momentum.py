"""What becomes of momentum when a callback changes the learning rate."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.keras.callbacks.learning_rates import fit
from tests.support.one_weight import X, Y
from tests.variants import combined, in_full

pytestmark = pytest.mark.ranks("2")


def changing_rate(epoch: float) -> float:
    """Up, down, up again, another one at every batch."""
    return 1.0 + 0.8 * np.sin(9 * epoch)


def form_nine(rates, momentum: float, nesterov: bool) -> float:
    """Goyal et al. 2017, equation (9): the rate stands outside of the buffer, so nothing needs correcting."""
    w = u = 0.0
    for rate in rates:
        gradient = 2 * X * (w * X - Y)
        u = momentum * u + gradient
        w -= rate * (momentum * u + gradient if nesterov else u)
    return w


def rmsprop_form_nine(rates, momentum: float, rho: float = 0.9, epsilon: float = 1e-7) -> float:
    w = u = square = 0.0
    for rate in rates:
        gradient = 2 * X * (w * X - Y)
        square = rho * square + (1 - rho) * gradient**2
        u = momentum * u + gradient / np.sqrt(square + epsilon)
        w -= rate * u
    return w


@pytest.mark.parametrize(
    ("around", "nesterov"), combined(["nothing", "reduction and loss scale", *in_full("reduction")], [False, True])
)
def test_momentum_correction_of_sgd_agrees_with_the_closed_form(hvd, nesterov, around):
    optimizer = keras.optimizers.SGD(0.02, momentum=0.9, nesterov=nesterov)
    if around == "reduction and loss scale":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    if around != "nothing":
        optimizer = hvk.DistributedOptimizer(optimizer)
    schedule = hvk.callbacks.LearningRateScheduleCallback(0.02, changing_rate, staircase=False)
    rates, _, weight = fit(optimizer, schedule, epochs=4)
    assert weight == pytest.approx(form_nine(rates, 0.9, nesterov), rel=1e-5)


def test_momentum_correction_of_rmsprop_agrees_with_the_closed_form(hvd):
    schedule = hvk.callbacks.LearningRateScheduleCallback(0.02, changing_rate, staircase=False)
    rates, _, weight = fit(keras.optimizers.RMSprop(0.02, momentum=0.8), schedule, epochs=4)
    assert weight == pytest.approx(rmsprop_form_nine(rates, 0.8), rel=1e-4)


def test_momentum_correction_during_the_warmup(hvd):
    warmup = hvk.callbacks.LearningRateWarmupCallback(0.05, warmup_epochs=2)
    rates, _, weight = fit(keras.optimizers.SGD(0.05, momentum=0.9), warmup, epochs=3)
    assert weight == pytest.approx(form_nine(rates, 0.9, nesterov=False), rel=1e-5)


def test_without_correction_the_buffer_keeps_its_old_rate(hvd):
    """Shows that the tests above can fail."""
    schedule = hvk.callbacks.LearningRateScheduleCallback(
        0.02, changing_rate, staircase=False, momentum_correction=False
    )
    rates, _, weight = fit(keras.optimizers.SGD(0.02, momentum=0.9), schedule, epochs=4)
    assert weight != pytest.approx(form_nine(rates, 0.9, nesterov=False), rel=1e-2)


def test_optimizers_without_the_rate_in_a_buffer_are_left_alone(hvd):
    def trained(correct):
        schedule = hvk.callbacks.LearningRateScheduleCallback(0.02, changing_rate, momentum_correction=correct)
        return fit(keras.optimizers.Adam(0.02), schedule, epochs=3)[2]

    assert trained(True) == trained(False)

"""LearningRateScheduleCallback: which rate at which batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.keras.callbacks.learning_rates import STEPS_PER_EPOCH, fit
from tests.support.one_weight import one_weight_model
from tests.variants import combined, in_full

pytestmark = pytest.mark.ranks("2")


@pytest.mark.parametrize(("order", "wrapped"), combined(["before", "after"], [True, False]))
def test_the_rate_has_one_name_in_the_logs(hvd, rank, order, wrapped):
    """That of Keras 3, on all ranks, where a callback of Keras writes it; if only on one rank, with our optimizer."""

    def names(*callbacks):
        optimizer = keras.optimizers.SGD(0.08)
        return sorted(fit(hvk.DistributedOptimizer(optimizer) if wrapped else optimizer, *callbacks)[1])

    ours = [hvk.callbacks.LearningRateWarmupCallback(0.08, 1), hvk.callbacks.MetricAverageCallback()]
    of_keras = [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate)] if rank == 0 or not wrapped else []
    assert names(*(ours + of_keras if order == "before" else of_keras + ours)) == ["learning_rate", "loss"]
    assert names(*ours) == ["loss", "lr"]


@pytest.mark.parametrize("wrapped", [True, *in_full(False)])
def test_resumed_without_initial_lr(hvd, size, wrapped):
    """Refused where the rate may be multiplied twice, and not after the callback's span or with a new optimizer."""

    def halved(**more):
        return hvk.callbacks.LearningRateScheduleCallback(multiplier=lambda epoch: 0.5, **more)

    def fit(callback, first, last):
        model.fit(np.ones((4, 1)), np.ones((4, 1)), epochs=last, initial_epoch=first, verbose=0, callbacks=[callback])
        return float(model.optimizer.learning_rate.numpy())

    plain = keras.optimizers.SGD(0.1)
    model = one_weight_model(hvk.DistributedOptimizer(plain) if wrapped else plain)
    assert fit(halved(), 0, 2) == pytest.approx(0.05)
    for again in (halved(), hvk.callbacks.LearningRateWarmupCallback(warmup_epochs=3)):
        with pytest.raises(ValueError, match=r"needs `initial_lr`.* begins with epoch 2 .* rate 0\.05 after 2 steps"):
            fit(again, 2, 3)
    assert fit(halved(initial_lr=0.1), 2, 3) == pytest.approx(0.05)
    assert fit(halved(end_epoch=3), 3, 4) == pytest.approx(0.05)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    assert fit(halved(), 3, 4) == pytest.approx(0.05)


def test_spans_of_a_schedule(hvd):
    def span(factor, first, last):
        return hvk.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: factor, start_epoch=first, end_epoch=last)

    rates, history, _ = fit(keras.optimizers.SGD(0.1), span(0.5, 1, 2), span(0.2, 3, None), epochs=5)
    by_epoch = [0.1, 0.05, 0.05, 0.02, 0.02]
    np.testing.assert_allclose(rates, np.repeat(by_epoch, STEPS_PER_EPOCH), rtol=1e-6)
    np.testing.assert_allclose(history["lr"], by_epoch, rtol=1e-6)


def test_a_constant_multiplier_is_exponential_decay(hvd):
    schedule = hvk.callbacks.LearningRateScheduleCallback(0.1, 0.5)
    rates, _, _ = fit(keras.optimizers.SGD(0.3), schedule, epochs=3)
    np.testing.assert_allclose(rates, np.repeat([0.1, 0.05, 0.025], STEPS_PER_EPOCH), rtol=1e-6)


def test_exponential_decay_begins_with_the_span(hvd):
    schedule = hvk.callbacks.LearningRateScheduleCallback(0.1, 0.5, start_epoch=1)
    rates, _, _ = fit(keras.optimizers.SGD(0.3), schedule, epochs=4)
    np.testing.assert_allclose(rates, np.repeat([0.3, 0.1, 0.05, 0.025], STEPS_PER_EPOCH), rtol=1e-6)


def test_a_constant_multiplier_without_initial_lr_is_a_factor(hvd):
    schedule = hvk.callbacks.LearningRateScheduleCallback(multiplier=0.5, start_epoch=1)
    rates, _, _ = fit(keras.optimizers.SGD(0.3), schedule, epochs=3)
    np.testing.assert_allclose(rates, np.repeat([0.3, 0.15, 0.15], STEPS_PER_EPOCH), rtol=1e-6)


def test_without_staircase_the_rate_changes_at_every_batch(hvd):
    schedule = hvk.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 1 + epoch, staircase=False)
    rates, _, _ = fit(keras.optimizers.SGD(0.1), schedule, epochs=2)
    np.testing.assert_allclose(rates, [0.1 * (1 + batch / STEPS_PER_EPOCH) for batch in range(8)], rtol=1e-6)


def test_steps_per_epoch_given_by_hand(hvd, size):
    warmup = hvk.callbacks.LearningRateWarmupCallback(0.08, warmup_epochs=1, steps_per_epoch=2 * STEPS_PER_EPOCH)
    rates, _, _ = fit(keras.optimizers.SGD(0.08), warmup)
    line = [0.08 / size + (0.08 - 0.08 / size) * (batch + 1) / 8 for batch in range(STEPS_PER_EPOCH)]
    np.testing.assert_allclose(rates, line, rtol=1e-6)


def test_a_learning_rate_that_cannot_be_set_is_refused(hvd):
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    for optimizer in (keras.optimizers.SGD(decay), hvk.DistributedOptimizer(keras.optimizers.SGD(decay))):
        with pytest.raises(ValueError, match="WarmupCallback needs an optimizer whose learning rate is a number"):
            fit(optimizer, hvk.callbacks.LearningRateWarmupCallback(0.1))


def test_an_unknown_number_of_steps_is_refused(hvd):
    def endless():
        while True:
            yield np.ones((2, 1), np.float32), np.ones((2, 1), np.float32)

    model = one_weight_model(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="could not find out the number of steps(.|\n)*Pass `steps_per_epoch`"):
        model.fit(endless(), callbacks=[hvk.callbacks.LearningRateWarmupCallback(0.1)], verbose=0)


def test_a_missing_multiplier_is_refused():
    with pytest.raises(ValueError, match="`multiplier` must be a number or a function"):
        hvk.callbacks.LearningRateScheduleCallback(0.1)

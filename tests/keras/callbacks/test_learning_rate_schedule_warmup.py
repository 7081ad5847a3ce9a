"""LearningRateWarmupCallback: which rate at which batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.keras.callbacks.learning_rates import STEPS_PER_EPOCH, fit

pytestmark = pytest.mark.ranks("2")


def warmup_rates(size: int, full: float, epochs: int, total_epochs: int) -> list[float]:
    """By hand: a straight line from full / size at batch -1 to full at the last batch of the warm-up."""
    steps = epochs * STEPS_PER_EPOCH
    line = [full / size + (full - full / size) * (batch + 1) / steps for batch in range(steps)]
    return line + [full] * (total_epochs * STEPS_PER_EPOCH - steps)


def test_warmup_is_a_line_from_one_rank_s_rate_to_the_full_one(hvd, size, rank, capsys):
    warmup = hvk.callbacks.LearningRateWarmupCallback(initial_lr=0.08, warmup_epochs=2, verbose=1)
    rates, history, _ = fit(keras.optimizers.SGD(0.08), warmup, epochs=3)
    np.testing.assert_allclose(rates, warmup_rates(size, 0.08, 2, 3), rtol=1e-6)
    np.testing.assert_allclose(history["lr"], [rates[3], 0.08, 0.08], rtol=1e-6)
    printed = "Epoch 2: finished gradual learning rate warmup to 0.08." in capsys.readouterr().out
    assert printed == (rank == 0)


def test_warmup_without_initial_lr_takes_the_optimizer_s(hvd, size):
    rates, _, _ = fit(keras.optimizers.SGD(0.08), hvk.callbacks.LearningRateWarmupCallback(warmup_epochs=2), epochs=2)
    np.testing.assert_allclose(rates, warmup_rates(size, 0.08, 2, 2), rtol=1e-6)


def test_a_fit_that_resumes_in_the_middle_of_the_warmup(hvd, size):
    warmup = hvk.callbacks.LearningRateWarmupCallback(initial_lr=0.08, warmup_epochs=2)
    rates, _, _ = fit(keras.optimizers.SGD(0.08), warmup, epochs=2, initial_epoch=1)
    np.testing.assert_allclose(rates, warmup_rates(size, 0.08, 2, 2)[STEPS_PER_EPOCH:], rtol=1e-6)

"""hvd.scaled and hvd.schedules.Warmup: by hand, in fit, compiled, in a loop, after other sessions, from files."""

from __future__ import annotations

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.keras_training import skip_jit
from tests.support.one_weight import X, Y, one_weight_model

pytestmark = pytest.mark.ranks("2")

WARM, DECAY = 3, keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=4, decay_rate=0.5)


def by_hand(size: int, step: int, power: float = 1.0) -> float:
    """A line from the rate of one rank, one step before the first, to that of all; times the decay."""
    return 0.01 * 0.5 ** (step / 4) * (1 + (size**power - 1) * min(1, (step + 1) / WARM))


def trained_by_hand(size: int, steps: int) -> float:
    """The weight of one_weight_model after SGD, whose gradient of (w * X - Y)^2 is the same on all ranks."""
    weight = 0.0
    for step in range(steps):
        weight -= by_hand(size, step) * 2 * X * (weight * X - Y)
    return weight


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_fit(hvd, size, jit_compile):
    skip_jit(jit_compile, size)
    model = one_weight_model(keras.optimizers.SGD())
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(hvk.schedules.Warmup(DECAY, WARM)))
    model.compile(optimizer, loss="mse", jit_compile=jit_compile)
    rows = [np.full((12, 1), value, np.float32) for value in (X, Y)]
    model.fit(*rows, batch_size=2, epochs=1, verbose=0, shuffle=False)
    np.testing.assert_allclose(model.get_weights()[0], trained_by_hand(size, 6), rtol=1e-5)
    np.testing.assert_allclose(float(optimizer.learning_rate), by_hand(size, 6), rtol=1e-5)


def test_in_a_loop_of_one_s_own(hvd, size):
    model, optimizer = one_weight_model("sgd"), keras.optimizers.SGD(hvk.schedules.Warmup(DECAY, WARM))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.square(model(tf.constant([[X]])) - Y)
        grads = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))

    for _ in range(5):
        step()
    np.testing.assert_allclose(model.get_weights()[0], trained_by_hand(size, 5), rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_graph_follows_the_number_of_ranks(restartable, rank, size, jit_compile):
    """Elastic training: traced with all ranks, run by each alone, and by all again."""
    if os.environ.get("SMDDP_MPI") == "off":
        pytest.skip("sessions of some ranks need MPI; these meet over TCP")
    skip_jit(jit_compile, size)
    traces = []

    @tf.function(jit_compile=jit_compile)
    def rate(step):
        traces.append(step)
        return hvk.schedules.Warmup(DECAY, WARM, rule="sqrt")(step)

    for ranks in (size, 1, size):
        restartable.shutdown()
        restartable.init(*([[rank]] if ranks == 1 else []))
        for step in (0, 1, 7):
            expected = by_hand(ranks, step, 0.5)
            np.testing.assert_allclose(rate(tf.constant(step, tf.int64)), expected, rtol=1e-5)
    assert len(traces) == 1


@pytest.mark.parametrize("inner", [0.02, DECAY], ids=["number", "schedule"])
def test_saved_and_loaded(hvd, rank, tmp_path, inner):
    warmup = hvk.schedules.Warmup(inner, WARM, rule="sqrt", passes=2)
    model = one_weight_model(hvk.DistributedOptimizer(keras.optimizers.SGD(warmup)))
    model.save(tmp_path / "model.keras")
    for load in (keras.models.load_model, hvk.load_model):
        loaded = load(tmp_path / "model.keras").optimizer._learning_rate
        assert type(loaded) is hvk.schedules.Warmup
        assert loaded.get_config() == warmup.get_config()
        for step in (0, 2, 9):
            assert float(loaded(step)) == float(warmup(step))


def test_the_callback_names_the_schedule(hvd):
    model, warmup = one_weight_model(keras.optimizers.SGD(DECAY)), hvk.callbacks.LearningRateWarmupCallback(0.1)
    with pytest.raises(ValueError, match=r"hvd\.schedules\.Warmup"):
        model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0, callbacks=[warmup])


def test_scaled_counts_ranks_and_passes(hvd, size):
    assert hvd.scaled(0.1) == pytest.approx(0.1 * size)
    assert hvd.scaled(0.1, passes=4) == pytest.approx(0.4 * size)
    assert hvd.scaled(0.1, "sqrt", passes=4) == pytest.approx(0.2 * size**0.5)
    accumulating = keras.optimizers.Adam(gradient_accumulation_steps=3)
    assert hvd.scaled(0.1, optimizer=accumulating) == pytest.approx(0.3 * size)


@pytest.mark.parametrize("average", [False, True])
def test_scaled_takes_sums_of_sgd_into_account(hvd, size, average):
    """The update of the mean gradient is the same, whether the optimizer applies the sum of its passes or the mean."""
    weights = []
    for scale in (1, 0.25):  # of the whole batch at once; in passes whose mean is the same gradient
        passes = 1 if scale == 1 else 4
        optimizer = hvk.DistributedOptimizer(
            keras.optimizers.SGD(), backward_passes_per_step=passes, average_aggregated_gradients=average
        )
        optimizer.learning_rate = hvk.scaled(0.01 * scale, optimizer=optimizer)
        weight = tf.Variable([1.0])
        for _ in range(passes):
            optimizer.apply_gradients([(tf.constant([2.0]), weight)])
        weights.append(float(weight[0]))
    assert weights[0] == pytest.approx(1.0 - 0.02 * size)
    assert weights[1] == pytest.approx(weights[0])
    adam = hvk.DistributedOptimizer(keras.optimizers.Adam(), backward_passes_per_step=4)
    assert hvk.scaled(0.01, optimizer=adam) == pytest.approx(0.04 * size)
    summing = hvk.DistributedOptimizer(keras.optimizers.SGD(), op=hvk.Sum)
    assert hvk.scaled(0.01, optimizer=summing) == pytest.approx(0.01)


def test_wrong_arguments(hvd):
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=2)
    for call, message in (
        (lambda: hvk.scaled(DECAY), "hvd.schedules.Warmup takes schedules"),
        (lambda: hvk.scaled(0.1, "cubic"), "'linear', 'sqrt'. Received: rule='cubic'"),
        (lambda: hvk.scaled(0.1, optimizer=optimizer, passes=3), r"the optimizer's \(2\)"),
        (lambda: hvk.scaled(0.1, passes=-1), "1 or more"),
        (lambda: hvk.schedules.Warmup(0.1, 0), "warmup_steps=0"),
        (lambda: hvk.schedules.Warmup(0.1, 5, "cubic"), "rule='cubic'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

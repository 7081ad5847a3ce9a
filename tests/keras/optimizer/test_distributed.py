"""The optimizer that is given to `hvd.DistributedOptimizer` stays as it is; the one that reduces is like it."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.roles.optimizers import innermost
from smddp_tf.keras.roles.wrapping import reduces

pytestmark = pytest.mark.ranks("2")


class OwnArguments(keras.optimizers.SGD):
    """Its configuration does not make one."""

    def __init__(self, scales, learning_rate=1.0):
        super().__init__(learning_rate, momentum=0.5)
        self.scales = scales

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient * self.scales[0], variable, learning_rate)


class OwnAttribute(keras.optimizers.SGD):
    """Its configuration makes one with another `factor`."""

    def __init__(self, learning_rate=1.0, **more):
        super().__init__(learning_rate, **more)
        self.factor = 1.0

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient * self.factor, variable, learning_rate)


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Depends on a variable of the user's, and has no configuration."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, step):
        return self.factor * 1.0


def with_attribute():
    optimizer = OwnAttribute(1.0)
    optimizer.factor = 2.0
    return optimizer


RATE = tf.Variable(1.0, trainable=False)
# Each, and by how much it multiplies the first gradient.
KINDS = {
    "sgd": (lambda: keras.optimizers.SGD(1.0), 1),
    "momentum": (lambda: keras.optimizers.SGD(1.0, momentum=0.9), 1),
    "own arguments": (lambda: OwnArguments([3.0]), 3),
    "own attribute": (with_attribute, 2),
    "schedule": (lambda: keras.optimizers.SGD(Schedule(RATE)), 1),
    "function": (lambda: keras.optimizers.SGD(lambda: RATE * 1.0), 1),
    "average of weights": (lambda: keras.optimizers.SGD(1.0, use_ema=True), 1),
    "loss scale": (lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(8.0), initial_scale=8.0), 1),
    "loss scale, own": (lambda: keras.optimizers.LossScaleOptimizer(OwnArguments([3.0], 8.0), initial_scale=8.0), 3),
}


def moved(optimizer, rank: int, variable=None) -> float:
    """By how much a step with the gradient rank + 1 moves a variable."""
    variable = keras.Variable([0.0]) if variable is None else variable
    before = float(variable.numpy()[0])
    optimizer.apply_gradients([(tf.constant([rank + 1.0]), variable)])
    return before - float(variable.numpy()[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", ["given", "ours"])
def test_each_has_its_own_state(hvd, rank, size, kind, first):
    make, factor = KINDS[kind]
    given = make()
    ours = hvk.DistributedOptimizer(given)
    assert type(ours).__name__ == type(given).__name__
    assert reduces(ours)
    assert not reduces(given)
    for optimizer in (given, ours) if first == "given" else (ours, given):
        expected = factor * (rank + 1 if optimizer is given else (size + 1) / 2)
        assert moved(optimizer, rank) == pytest.approx(expected)
        assert int(innermost(optimizer).iterations.numpy()) == 1
    ours.learning_rate if kind in ("schedule", "function") else setattr(ours, "learning_rate", 0.5)
    if kind not in ("schedule", "function"):
        assert float(given.learning_rate.numpy()) != 0.5


@pytest.mark.parametrize("kind", ["momentum", "loss scale"])
def test_one_that_is_made_in_a_trace_is_wrapped_itself(hvd, kind):
    """It has no values that could be copied, and nobody else has it."""

    are_same = []

    def make():
        given = KINDS[kind][0]()
        are_same.append(hvk.DistributedOptimizer(given) is given)

    with pytest.raises(
        ValueError, match="singleton tf.Variables"
    ):  # a function makes variables in its first trace only
        tf.function(make)()
    with tf.Graph().as_default():
        make()
    assert all(are_same)
    assert len(are_same) > 1


def test_an_error_of_an_optimizer_is_not_taken_for_a_trace(hvd):
    if not hasattr(keras.optimizers.Optimizer, "iterations"):
        pytest.skip(f"in Keras {keras.__version__} `iterations` is no property")

    class Broken(keras.optimizers.SGD):
        @property
        def iterations(self):
            raise ArithmeticError("of the user's")

    given = Broken(1.0)
    with pytest.raises(ArithmeticError, match="of the user's"):
        hvk.DistributedOptimizer(given)
    assert not reduces(given)


def test_one_optimizer_for_several_models(hvd):
    given = keras.optimizers.Adam(0.1)
    for _ in range(2):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(hvk.DistributedOptimizer(given), "mse")
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
        assert int(model.optimizer.iterations.numpy()) == 1
    assert int(given.iterations.numpy()) == 0


@pytest.mark.parametrize("kind", ["momentum", "own arguments", "loss scale, own", "average of weights"])
def test_the_state_of_steps_before_is_kept(hvd, rank, size, kind):
    variable, reference = keras.Variable([0.0]), keras.Variable([0.0])
    given, whole = KINDS[kind][0](), KINDS[kind][0]()
    moved(given, 1.0, variable)
    moved(whole, 1.0, reference)
    ours = hvk.DistributedOptimizer(given)
    for theirs, our in zip(given.variables, ours.variables):
        assert theirs is not our
        np.testing.assert_array_equal(theirs, our)
    assert moved(ours, rank, variable) == pytest.approx(moved(whole, (size - 1) / 2, reference))
    assert int(innermost(given).iterations.numpy()) == 1


def test_a_checkpoint_that_is_not_read_yet(hvd, rank, tmp_path):
    def model_and(optimizer):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
        return model, tf.train.Checkpoint(model=model, optimizer=optimizer)

    model, checkpoint = model_and(keras.optimizers.Adam(0.1))
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, epochs=3)
    path = checkpoint.save(tmp_path / f"rank-{rank}")
    plain = keras.optimizers.Adam(0.1)
    tf.train.Checkpoint(optimizer=plain).restore(path)
    with pytest.raises(ValueError, match="has read values for variables that the optimizer has not made yet"):
        hvk.DistributedOptimizer(plain)
    other, checkpoint = model_and(hvk.DistributedOptimizer(keras.optimizers.Adam(0.1)))
    checkpoint.restore(path)
    other.optimizer.build(other.trainable_variables)
    for saved, read in zip(model.optimizer.variables, other.optimizer.variables):
        np.testing.assert_array_equal(saved, read)


def test_objects_of_the_user_are_shared(hvd, rank, size):
    RATE.assign(1.0)
    given = keras.optimizers.SGD(Schedule(RATE))
    given.notes = notes = {"variable": RATE}
    ours = hvk.DistributedOptimizer(given)
    assert ours.notes == notes
    RATE.assign(0.25)
    assert moved(ours, rank) == pytest.approx(0.25 * (size + 1) / 2)
    RATE.assign(1.0)

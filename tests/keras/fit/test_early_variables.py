"""The variables of metrics and of the optimizer exist before the first step, which is therefore traced once."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk

pytestmark = pytest.mark.ranks("2", "2+1")

BATCH, FEATURES = 4, 6


class Traced(keras.layers.Layer):
    """Notes each time it is called in Python, with `training`."""

    def __init__(self, seen: list[bool]) -> None:
        super().__init__()
        self.note = seen.append  # Keras copies lists

    def call(self, x, training=None):
        self.note(bool(training))
        return x


class OwnStep(keras.Model):
    def train_step(self, data):
        return super().train_step(data)


class Grumpy(keras.metrics.Metric):
    """Cannot be updated from shapes alone the first time."""

    def __init__(self) -> None:
        super().__init__(name="grumpy")
        self.total = self.add_weight(name="total", initializer="zeros")
        self.updates = 0

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.updates += 1
        if self.updates == 1:
            raise ValueError("not from shapes")
        self.total.assign_add(keras.ops.sum(y_true))

    def result(self):
        return self.total


class AtFirstBatch(keras.callbacks.Callback):
    def __init__(self, look) -> None:
        super().__init__()
        self.look, self.seen = look, []

    def on_train_batch_begin(self, batch, logs=None):
        if not self.seen:
            self.seen.append(self.look(self.model))


def data_of(rank: int, steps: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(20 + rank)
    x = random.normal(size=(steps * BATCH, FEATURES)).astype(np.float32)
    return x, (x[:, :2] * (1 + rank)).astype(np.float32)


def model_of(seen: list[bool], kind=keras.Model, optimizer=None, **options) -> keras.Model:
    keras.utils.set_random_seed(3)
    x = keras.Input((FEATURES,))
    model = kind(x, keras.layers.Dense(2)(Traced(seen)(x)))
    model.compile(optimizer or hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", **options)
    seen.clear()
    return model


def traces(has_metrics: bool) -> list[bool]:
    """Once from shapes, which Keras 3.3 does where there are metrics only, and the step."""
    return [False, True] if has_metrics or not keras.__version__.startswith("3.3.") else [True]


@pytest.mark.parametrize("options", [{}, {"metrics": ["mae"]}, {"metrics": ["mae"], "steps_per_execution": 3}])
def test_the_step_is_traced_once(rank, options):
    seen: list[bool] = []
    model = model_of(seen, **options)
    before = AtFirstBatch(lambda model: (model.optimizer.built, len(model.optimizer.variables)))
    model.fit(*data_of(rank), batch_size=BATCH, verbose=0, callbacks=[before])
    assert before.seen == [(True, 2 + 2 * 2)]
    expected = traces("metrics" in options)
    assert seen == expected
    model.fit(*data_of(rank), batch_size=BATCH, verbose=0)
    assert seen == expected


def test_with_shards_of_the_state_too(hvd, rank):
    seen: list[bool] = []
    model = model_of(seen, optimizer=hvk.DistributedOptimizer(keras.optimizers.Adam(0.01), partition_state="world"))
    model.fit(*data_of(rank), batch_size=BATCH, verbose=0)
    assert seen == traces(has_metrics=False)


def test_ranks_with_unequal_numbers_of_batches(hvd, rank):
    seen: list[bool] = []
    model = model_of(seen, metrics=["mae"])
    model.fit(*data_of(rank, steps=2 + rank), batch_size=BATCH, verbose=0)
    assert seen.count(False) == 1
    assert seen[0] is False
    assert int(model.optimizer.iterations.numpy()) == 2 + hvd.size() - 1


def test_steps_of_the_users_own_make_their_variables(rank):
    before = AtFirstBatch(lambda model: model.optimizer.built)
    seen: list[bool] = []
    model = model_of(seen, OwnStep, metrics=["mae"])
    model.fit(*data_of(rank), batch_size=BATCH, verbose=0, callbacks=[before])
    assert before.seen == [False]
    assert False not in seen
    assert int(model.optimizer.iterations.numpy()) == 3


def test_what_cannot_be_made_from_shapes_is_made_by_the_step(rank):
    model = model_of([], metrics=[Grumpy()])
    x, y = data_of(rank)
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history
    assert keras.ops.convert_to_numpy(history["grumpy"][1]) == pytest.approx(float(y.sum()), rel=1e-5)
    assert int(model.optimizer.iterations.numpy()) == 6


def test_slots_begin_with_the_weights_that_callbacks_set(hvd, rank):
    """Not with those before: rank 0's reach the others in a callback, and the slots must be equal on all ranks too."""
    if not hasattr(keras.optimizers, "ScheduleFreeAdamW"):
        pytest.skip("this Keras has no optimizer whose slots begin with the weights")
    model = model_of([], optimizer=hvk.DistributedOptimizer(keras.optimizers.ScheduleFreeAdamW(0.01)))
    model.set_weights([weight + rank for weight in model.get_weights()])
    broadcast = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: hvd.broadcast_variables([v.value for v in model.variables], 0)
    )
    slots = AtFirstBatch(lambda model: [slot.numpy() for slot in model.optimizer.variables])
    model.fit(*data_of(rank), batch_size=BATCH, verbose=0, callbacks=[broadcast, slots])
    kernel = next(slot for slot in slots.seen[0] if slot.shape == (FEATURES, 2) and np.any(slot))
    assert len(slots.seen[0]) > 2
    expected = hvd.broadcast_object(kernel, 0)
    np.testing.assert_array_equal(kernel, expected)


def test_weights_are_those_of_variables_made_by_the_step(monkeypatch, rank):
    weights = []
    for make in (None, lambda *_, **__: None):
        with monkeypatch.context() as patch:
            if make is not None:
                patch.setattr("smddp_tf.keras.fit.guard.make_variables", make)
            model = model_of([], metrics=["mae"])
            history = model.fit(*data_of(rank, 6), batch_size=BATCH, epochs=2, verbose=0).history
            weights.append(
                [*model.get_weights(), *(value.numpy() for value in model.optimizer.variables), history["mae"]]
            )
    for early, late in zip(*weights):
        np.testing.assert_array_equal(early, late)
    assert len(tf.nest.flatten(weights[0])) > 6

"""`fit` that should reduce and does not, because `DistributedOptimizer` was forgotten, is told so."""

from __future__ import annotations

import contextlib
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf
import smddp_tf.keras as hvk
from smddp_tf import process_sets
from tests.support.early_variables import with_variables
from tests.support.keras_training import dense_model
from tests.support.uneven_data import BATCH, data_of

pytestmark = pytest.mark.ranks("2")

callbacks = hvk.callbacks


def told(function) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [warning for warning in caught if "Every rank trains a model of its own" in str(warning.message)]


def fit(model, rank, *given, rows=2 * BATCH):
    as_list = len(given) == 1 and isinstance(given[0], keras.callbacks.CallbackList)
    model.fit(*data_of(rank, rows), batch_size=BATCH, verbose=0, callbacks=given[0] if as_list else list(given))


def compiled(optimizer="adam", model=None, **options) -> keras.Model:
    model = model or dense_model()
    model.compile(optimizer, loss="mse", **options)
    return with_variables(model)


@pytest.mark.parametrize(
    "way",
    [
        "nothing of ours",
        "no callbacks",
        "broadcast",
        "average",
        "weighted",
        "warm-up",
        "by hand",
        "CallbackList",
        "eagerly",
    ],
)
def test_forgotten(hvd, rank, size, way):
    model = compiled(keras.optimizers.SGD(0.1) if way == "warm-up" else "adam", run_eagerly=way == "eagerly")
    given = {
        "broadcast": lambda: [callbacks.BroadcastGlobalVariablesCallback(0)],
        "weighted": lambda: [callbacks.MetricAverageCallback(weighted=True)],
        "warm-up": lambda: [callbacks.LearningRateWarmupCallback(0.1, 2)],
        "nothing of ours": lambda: [keras.callbacks.TerminateOnNaN()],
        "no callbacks": list,
        "by hand": lambda: hvd.broadcast_variables(model.variables, 0) or [],
    }.get(way, lambda: [callbacks.MetricAverageCallback()])()
    if way == "CallbackList":
        given = [keras.callbacks.CallbackList(given, add_history=True, model=model, epochs=1, steps=2)]
    found = told(lambda: [fit(model, rank, *given) for _ in range(2)])
    assert [warning.filename for warning in found] == ([__file__] if rank == 0 and size > 1 else [])
    for warning in found:
        name = "SGD" if way == "warm-up" else "Adam"
        assert ("If rank 0 is to train alone" in str(warning.message)) == (way in ("nothing of ours", "no callbacks"))
        assert f"model.compile(hvd.DistributedOptimizer(keras.optimizers.{name}(...)), ...)" in str(warning.message)


def by_tape(tape, loss, variables):
    return smddp_tf.DistributedGradientTape(tape).gradient(loss, variables)


def by_hand(tape, loss, variables):
    return [smddp_tf.allreduce(grad) for grad in tape.gradient(loss, variables)]


def by_group(tape, loss, variables):
    return smddp_tf.grouped_allreduce(tape.gradient(loss, variables))


class OwnStep(keras.Sequential):
    """Reduces in a `train_step` of its own, after every second batch if asked to."""

    def __init__(self, layers, reduce, every=1):
        super().__init__(layers)
        self.reduce, self.every = reduce, every
        self.batches = tf.Variable(0)

    def train_step(self, data):
        x, y, *_ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        variables = self.trainable_variables
        self.batches.assign_add(1)

        def update():
            self.optimizer.apply(self.reduce(tape, loss, variables), variables)
            return 0.0

        if self.every == 1:
            update()
        else:
            tf.cond(self.batches % self.every == 0, update, lambda: 0.0)
        return {"loss": loss}


@pytest.mark.parametrize(
    "way",
    [
        *("wrapped", "in an attribute", "tape", "tape later", "allreduce", "allreduce later", "group later"),
        *("of some ranks", "no data"),
    ],
)
def test_not_forgotten(hvd, rank, way, monkeypatch):
    layers = dense_model().layers
    make = {
        "wrapped": lambda: compiled(hvk.DistributedOptimizer(keras.optimizers.Adam())),
        "tape": lambda: compiled(model=OwnStep(layers, by_tape)),
        "tape later": lambda: compiled(model=OwnStep(layers, by_tape, every=9)),
        "allreduce": lambda: compiled(model=OwnStep(layers, by_hand)),
        "allreduce later": lambda: compiled(model=OwnStep(layers, by_hand, every=4)),
        "group later": lambda: compiled(model=OwnStep(layers, by_group, every=4)),
    }
    model = make.get(way, compiled)()
    if way == "in an attribute":
        model.second = hvk.DistributedOptimizer(keras.optimizers.Adam())
        model.train_step = lambda data: {"loss": 0.0}
    if way == "of some ranks":
        monkeypatch.setattr(process_sets, "process_set_ids", lambda: [0, 1])
    given = [callbacks.BroadcastGlobalVariablesCallback(0)]
    data = tf.data.Dataset.from_tensor_slices(data_of(rank, 2 * BATCH)).batch(BATCH)

    def train():
        with contextlib.suppress(TypeError if way == "no data" else ()):  # Keras 3.3 asks for at least one batch
            model.fit(data.take(0) if way == "no data" else data, verbose=0, callbacks=given)

    assert told(lambda: [train() for _ in range(3)]) == []


def test_one_rank_alone(hvd, rank, size):
    """Is no error, and waits for nobody; the model may be wrapped afterwards."""
    model = compiled()
    found = told(lambda: fit(model, rank)) if rank == 0 else []
    assert len(found) == (rank == 0 and size > 1)
    hvd.broadcast_variables(model.trainable_variables, 0)
    assert told(lambda: fit(compiled(hvk.DistributedOptimizer(keras.optimizers.Adam()), model), rank)) == []


def test_evaluation_alone(hvd, rank):
    model = compiled()
    hvd.broadcast_variables(model.variables, 0)
    x, y = data_of(rank, BATCH)
    assert told(lambda: (model.evaluate(x, y, verbose=0), hvk.evaluate(model, x, y, verbose=0))) == []


def test_a_step_traced_before(hvd, rank):
    """Nothing is traced in `fit`, and the tape's results were seen long ago."""
    model = compiled(model=OwnStep(dense_model().layers, by_tape))
    x, y = data_of(rank, BATCH)
    model.train_on_batch(x, y)
    assert told(lambda: fit(model, rank, callbacks.MetricAverageCallback(), rows=BATCH)) == []
    assert np.isfinite(model.evaluate(x, y, verbose=0))

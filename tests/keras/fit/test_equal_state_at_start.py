"""Ranks that begin a `fit` with different weights are told so."""

from __future__ import annotations

import warnings

import keras
import pytest

import smddp_tf.keras as hvk
from tests.keras.fit import diverging
from tests.keras.fit.diverging import compiled, fit

pytestmark = [pytest.mark.ranks("2"), pytest.mark.usefixtures("several_ranks")]


# --- an unsynchronised start ---


def model_of_rank(rank: int) -> keras.Model:
    keras.utils.set_random_seed(rank)
    return keras.Sequential([keras.layers.Dense(4, name="first"), keras.layers.Dense(3)])


def warned_of_start(fitted) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted()
    ours = [warning for warning in caught if "do not train the same model" in str(warning.message)]
    assert all(warning.filename == diverging.__file__ for warning in ours)
    return [str(warning.message) for warning in ours]


def test_different_weights_at_the_start_are_told_once(hvd, rank, size):
    model = compiled(model=model_of_rank(rank))
    told = warned_of_start(lambda: [fit(model, rank, epochs=1) for _ in range(2)])
    assert len(told) == (1 if rank == 0 else 0)
    if rank == 0:
        assert "first/kernel', between rank 0 and rank 1" in told[0]
        assert "BroadcastGlobalVariablesCallback" in told[0]


@pytest.mark.parametrize("way", ["callback", "by hand", "equal seeds"])
def test_no_warning_where_ranks_are_synchronised(hvd, rank, size, way):
    model = compiled(model=model_of_rank(0 if way == "equal seeds" else rank))

    class ByHand(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                hvd.broadcast_variables(self.model.variables, 0)
                hvd.broadcast_variables(self.model.optimizer.variables, 0)

    callbacks = {"callback": [hvk.callbacks.BroadcastGlobalVariablesCallback(0)], "by hand": [ByHand()]}
    assert warned_of_start(lambda: fit(model, rank, *callbacks.get(way, []), epochs=1)) == []


@pytest.mark.parametrize("way", ["state.sync", "next epoch", "next fit"])
def test_a_fit_of_one_step_is_no_training_yet(hvd, rank, size, way):
    """Horovod's elastic examples make the variables with one, before `state.sync()`. Going on without is told."""
    model = compiled(model=model_of_rank(rank))
    one_step = {"steps_per_epoch": 1}
    told = [len(warned_of_start(lambda: fit(model, rank, epochs=2 if way == "next epoch" else 1, **one_step)))]
    if way == "state.sync":
        hvk.elastic.KerasState(model, batch=0).sync()
        told.append(len(warned_of_start(lambda: fit(model, rank, epochs=2))))
    elif way == "next fit":
        told.append(len(warned_of_start(lambda: fit(model, rank, epochs=1, **one_step))))
    expected = {"state.sync": [0, 0], "next epoch": [1], "next fit": [0, 1]}
    assert told == (expected[way] if rank == 0 else [0] * len(told))

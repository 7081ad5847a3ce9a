"""Learning rates and weights that callbacks of one rank have set are made equal on all."""

from __future__ import annotations

import re
import warnings

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.keras.fit import diverging
from tests.keras.fit.diverging import compiled, fit
from tests.support.keras_training import same_on_all_ranks
from tests.variants import combined

pytestmark = [pytest.mark.ranks("2"), pytest.mark.usefixtures("several_ranks")]


class StopAtEpoch(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            self.model.stop_training = True


def test_learning_rates_of_one_ranks_metrics_are_repaired(hvd, rank, size, mpi):
    model = compiled()

    class Lower(keras.callbacks.Callback):
        """Like ReduceLROnPlateau, with metrics that only this rank sees."""

        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.01 / (rank + 2)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, rank, Lower(), epochs=2)
    assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(0.005)
    assert same_on_all_ranks(mpi, model)
    told = [warning.filename for warning in caught if "different learning rates" in str(warning.message)]
    assert told == ([diverging.__file__] * 2 if rank == 0 else [])  # the line that called `fit`


class RateOfBatches(keras.callbacks.Callback):
    """Another learning rate for some batches; that of the others at the end of each epoch."""

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.05 if batch == 1 else 0.01


class OtherWeights(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.set_weights([weight + 1 for weight in self.model.get_weights()])


CALLBACKS = [
    (lambda: keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)), "began an epoch with .*rates"),
    (RateOfBatches, "ended an epoch with different weights"),
    (OtherWeights, "ended an epoch with different weights"),
]


@pytest.mark.parametrize(("setter", "holder"), combined(CALLBACKS, ["first", "last"]))
def test_what_a_callback_of_one_rank_sets_before_a_step(hvd, rank, size, mpi, setter, holder):
    callback, what = setter
    model = compiled(keras.optimizers.SGD(0.01, momentum=0.9))
    callbacks = [callback()] if rank == (0 if holder == "first" else size - 1) else []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, rank, hvk.callbacks.BroadcastGlobalVariablesCallback(0), *callbacks, epochs=2)
    assert same_on_all_ranks(mpi, model)
    momentum = mpi.allgather(np.concatenate([np.ravel(variable) for variable in model.optimizer.variables]))
    assert all(np.array_equal(momentum[0], each) for each in momentum)
    assert any(re.search(what, str(warning.message)) for warning in caught) == (rank == 0)


def test_restored_weights_are_the_same_everywhere(hvd, rank, size, mpi):
    """The best epoch is another one on each rank."""
    model = compiled()

    class Invented(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["loss"] = abs(epoch - min(rank, 1) * 2)

    early = keras.callbacks.EarlyStopping("loss", patience=10, restore_best_weights=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, rank, Invented(), early, *([StopAtEpoch()] if rank < 0 else []), epochs=3)
    assert same_on_all_ranks(mpi, model)
    assert any("restored different weights" in str(warning.message) for warning in caught) == (rank == 0)

"""What callbacks decide on one rank holds for all: stopping, and when ranks ask each other."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from smddp_tf._native import loader
from tests.keras.fit.diverging import ROWS, compiled, fit
from tests.support.keras_training import dense_model, same_on_all_ranks
from tests.support.uneven_data import BATCH, batches_of, data_of
from tests.variants import in_full

pytestmark = [pytest.mark.ranks("2"), pytest.mark.usefixtures("several_ranks")]


class StopAtBatch(keras.callbacks.Callback):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.batch:
            self.model.stop_training = True


class StopAtEpoch(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            self.model.stop_training = True


@pytest.mark.parametrize("given_as", ["list", "one callback", "CallbackList"])
def test_one_rank_stops_all_in_the_middle_of_an_epoch(hvd, rank, size, mpi, given_as):
    model = compiled()
    callback = StopAtBatch(2 if rank == size - 1 else 10**6)
    given = {"list": [callback], "one callback": callback}.get(given_as)
    if given_as == "CallbackList":
        given = keras.callbacks.CallbackList([callback], add_history=True, model=model, epochs=3, steps=ROWS // BATCH)
    x, y = data_of(rank, ROWS)
    model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0, callbacks=given)
    assert int(model.optimizer.iterations.numpy()) == 3
    if given_as == "CallbackList":
        assert callback in given.callbacks
        assert len(given.callbacks) == 2


def test_one_rank_alone_has_the_callback(hvd, rank, size, mpi):
    """The others take part although no callback of theirs looks at batches."""
    model = compiled()
    fit(model, rank, *([StopAtBatch(3)] if rank == 0 else []))
    assert int(model.optimizer.iterations.numpy()) == 4
    assert model.stop_training
    assert same_on_all_ranks(mpi, model)


class Silent(keras.callbacks.Callback):
    """Sees every batch; nothing in its code tells that it may stop training."""

    def __init__(self, batch=None, name="stop"):
        super().__init__()
        self.batch, self.name = batch, f"{name}_training"

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.batch:
            setattr(self.model, self.name, True)


class Logger(Silent):
    stops_training = False


class ByInheritance(keras.callbacks.TerminateOnNaN):
    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, {"loss": np.nan if batch == 3 else 1.0})


LONG = 41


@pytest.mark.parametrize(
    ("callback", "steps", "most_requests"),
    [
        (lambda: Logger(), 2 * LONG, 12),
        (lambda: Silent(), 2 * LONG, LONG + 12),
        (lambda: Silent(17), 18, 30),
        (lambda: Silent(LONG - 2), LONG - 1, LONG + 12),
        (lambda: ByInheritance(), 4, 16),
        (lambda: keras.callbacks.ModelCheckpoint("never.keras", save_freq=10**6), 2 * LONG, 12),
    ],
    ids=["never", "could", "in the middle", "near the end", "by what it inherits", "of Keras"],
)
def test_ranks_ask_as_often_as_needed(hvd, rank, size, mpi, callback, steps, most_requests):
    """A callback of rank 0 alone; whatever it does, the ranks stop at the same step."""
    model = compiled()
    counts = []

    class Requests(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            counts.append(loader.core().stats()["named_requests"])

        on_epoch_end = on_epoch_begin

    own = [callback()] if rank == 0 else []
    fit(model, rank, Requests(), *own, epochs=2, data=data_of(rank, LONG * BATCH))
    assert mpi.allgather(int(model.optimizer.iterations.numpy())) == [steps] * size
    assert model.stop_training == (steps < 2 * LONG)
    assert same_on_all_ranks(mpi, model)
    assert counts[1] - counts[0] <= most_requests


@pytest.mark.parametrize("alone", [-1, *in_full(0)])
def test_callbacks_that_talk_to_the_other_ranks_come_before_the_agreement(hvd, rank, size, mpi, alone):
    """One rank prints after each batch, say; all ranks have a callback with collectives of its own at batches."""
    model = compiled()
    callbacks = [hvk.callbacks.BroadcastGlobalVariablesCallback(0)]
    if rank == alone % size:
        callbacks.append(StopAtBatch(2))
    fit(model, rank, *callbacks)
    assert int(model.optimizer.iterations.numpy()) == 3
    assert same_on_all_ranks(mpi, model)


def test_one_rank_stops_all_at_the_end_of_an_epoch(hvd, rank, size, mpi):
    model = compiled()
    history = fit(model, rank, *([StopAtEpoch()] if rank == size - 1 else []), epochs=5)
    assert len(history.epoch) == 2
    assert same_on_all_ranks(mpi, model)


def test_nan_on_one_rank_stops_all(hvd, rank, size):
    model = compiled()
    x, y = data_of(rank, ROWS)
    if rank == 0:
        y[2 * BATCH] = np.nan
    fit(model, rank, keras.callbacks.TerminateOnNaN(), data=(x, y))
    assert int(model.optimizer.iterations.numpy()) == 3


def test_stopping_while_a_rank_has_run_out(hvd, rank, size, mpi):
    model = compiled()
    fit(model, rank, StopAtBatch(4 if rank == size - 1 else 10**6), data=data_of(rank))
    assert len(batches_of(0)) < 5
    assert int(model.optimizer.iterations.numpy()) == 5
    assert same_on_all_ranks(mpi, model)


def test_ranks_that_begin_with_other_epochs_are_told(hvd, rank, size):
    model = compiled()

    class Resume(keras.callbacks.Callback):
        """Like BackupAndRestore with a backup on one rank only."""

        def on_train_begin(self, logs=None):
            self.model._initial_epoch = 1 if rank == 0 else 0

    with pytest.raises(ValueError, match=r"begin with the same epoch. Received: epochs \[1, 0"):
        fit(model, rank, Resume())


# --- metrics weighted by samples ---


def test_metrics_weighted_by_samples(hvd, rank, size, mpi):
    """One process that has seen all samples with the same weights: the learning rate is zero."""
    model = dense_model()
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse", metrics=["mae"])
    validation = data_of(20 + rank, 5 + 6 * rank)
    history = fit(
        model,
        rank,
        hvk.callbacks.MetricAverageCallback(weighted=True),
        data=data_of(rank),
        epochs=2,
        validation_data=validation,
    ).history
    alone = dense_model()
    alone.compile(keras.optimizers.SGD(0.0), loss="mse", metrics=["mae"])
    x, y = (np.concatenate(arrays) for arrays in zip(*(data_of(r) for r in range(size))))
    whole_validation = tuple(
        np.concatenate(arrays) for arrays in zip(*(data_of(20 + r, 5 + 6 * r) for r in range(size)))
    )
    expected = alone.fit(x, y, epochs=2, verbose=0, validation_data=whole_validation).history
    for key, values in expected.items():
        assert history[key] == pytest.approx(values, rel=1e-5)
    assert all(theirs == history for theirs in mpi.allgather(history))
    assert "train_step" not in vars(model)
    assert "test_step" not in vars(model)

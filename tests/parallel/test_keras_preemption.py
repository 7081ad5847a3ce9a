"""PreemptionCheckpoint: a signal on one rank saves and stops all, at one batch; the next `fit` goes on from there."""

from __future__ import annotations

import os
import signal

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.parallel.keras_training import dense_data, dense_model, flat_weights, part_of

EPOCHS, BATCHES = 4, 5
EPOCH, BATCH = 2, 3  # of the signal


class Signals(keras.callbacks.Callback):
    """Notes the batches, with their weights; sends itself a signal."""

    def __init__(self, sends: bool):
        super().__init__()
        self.sends, self.epoch = sends, -1
        self.seen: list[tuple[int, int]] = []
        self.weights = np.zeros(0)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self.sends and (self.epoch, batch) == (EPOCH, BATCH):
            os.kill(os.getpid(), signal.SIGTERM)

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append((self.epoch, batch))
        self.weights = flat_weights(self.model)


def fit(rank: int, size: int, *callbacks: keras.callbacks.Callback, scale: float = 1.0) -> keras.Model:
    model = dense_model()
    model.set_weights([scale * weight for weight in model.get_weights()])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    x, y = (part_of(array, rank, size) for array in dense_data(size, BATCHES))
    rows = len(x) // BATCHES
    model.fit(x, y, batch_size=rows, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model


def up_to(epoch: int, batch: int) -> list[tuple[int, int]]:
    return [(e, b) for e in range(epoch + 1) for b in range(BATCHES) if (e, b) <= (epoch, batch)]


@pytest.mark.parametrize("exit_code", [143, None])
def test_all_ranks_stop_at_one_batch_and_go_on(hvd, rank, size, tmp_path, exit_code):
    """The folders differ, so that no other rank finds what was saved; a restarted rank has other weights at first."""
    if size == 3 or (size > 2 and exit_code is None):
        pytest.skip("more ranks prove nothing new")
    folder = tmp_path / f"of_rank_{rank}"
    before = signal.getsignal(signal.SIGTERM)
    preempted = hvk.callbacks.PreemptionCheckpoint(folder, exit_code=exit_code)
    first = Signals(sends=rank == size - 1)
    if exit_code is None:
        fit(rank, size, first, preempted)
    else:
        with pytest.raises(SystemExit) as ended:
            fit(rank, size, first, preempted)
        assert ended.value.code == exit_code
    assert first.seen == up_to(EPOCH, BATCH)
    assert preempted.preempted
    assert signal.getsignal(signal.SIGTERM) == before
    assert folder.exists() == (rank == 0)

    again = hvk.callbacks.PreemptionCheckpoint(folder)
    second = Signals(sends=False)
    starts = _WeightsAtFirst()
    fit(rank, size, second, again, starts, scale=1.0 + rank)
    assert second.seen == [step for step in up_to(EPOCHS - 1, BATCHES - 1) if step[0] >= EPOCH]
    np.testing.assert_array_equal(starts.weights, first.weights)
    assert not again.preempted
    assert not folder.exists() or not list(folder.iterdir())


class _WeightsAtFirst(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.weights = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.weights is None:
            self.weights = flat_weights(self.model)


def test_what_cannot_be_saved_is_an_error_on_every_rank(hvd, rank, size, tmp_path):
    """On rank 0 alone the folder cannot be made: a file is in its place."""
    place = tmp_path / f"of_rank_{rank}"
    place.write_text("in the way")
    with pytest.raises(OSError, match="Rank 0 could not"):
        fit(rank, size, Signals(sends=rank == 0), hvk.callbacks.PreemptionCheckpoint(place / "folder", exit_code=None))

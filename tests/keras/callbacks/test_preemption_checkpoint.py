"""PreemptionCheckpoint: a signal on one rank saves and stops all, at one batch; the next `fit` goes on from there."""

from __future__ import annotations

import os
import signal
import warnings

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from smddp_tf.keras.callbacks import preemption_checkpoint
from tests.support.keras_training import dense_data, dense_model, flat_weights, part_of
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

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


@pytest.mark.parametrize("exit_code", [143, *in_full(None)])
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
    assert not folder.exists() or not list(folder.glob("[!.]*"))


class _WeightsAtFirst(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.weights = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.weights is None:
            self.weights = flat_weights(self.model)


# --- one folder for several trainings ---


class Job:
    """One run of a program that trains several times with one folder, which is preempted in one of the trainings."""

    def __init__(self, rank: int, size: int, folder):
        self.rank, self.size, self.folder = rank, size, folder
        preemption_checkpoint._finished.clear()  # a new process begins

    def fit(self, model, preempted: bool = False, **options) -> tuple[Signals, np.ndarray]:
        seen = Signals(sends=preempted and self.rank == 0)
        starts = _WeightsAtFirst()
        model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), loss="mse", run_eagerly=True)
        x = dense_data(self.size, BATCHES)[0]
        y = np.repeat(x[:, :1], model.output_shape[-1], axis=1) * len(model.weights)
        x, y = (part_of(array, self.rank, self.size) for array in (x, y))
        saves = hvk.callbacks.PreemptionCheckpoint(self.folder, exit_code=None, **options)
        data = {"batch_size": len(x) // BATCHES, "epochs": EPOCHS, "shuffle": False, "verbose": 0}
        model.fit(x, y, callbacks=[seen, starts, saves], **data)
        assert saves.preempted == preempted
        return seen, starts.weights


def wide_model() -> keras.Model:
    keras.utils.set_random_seed(9)
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(5)])


ALL = up_to(EPOCHS - 1, BATCHES - 1)
REST = [step for step in ALL if step[0] >= EPOCH]
# Which model each training of the program has. "phases": all trainings of one model.
PROGRAMS = {
    "two models": [dense_model, wide_model],
    "phases": [dense_model, None],
    "the first again": [dense_model, wide_model, dense_model],
}


@pytest.mark.parametrize("program", ["phases", *in_full("the first again", "two models")])
def test_a_training_is_not_resumed_into_another_one(hvd, rank, size, tmp_path, program):
    """Preempted in the last training, then in the first, then not. Eager, because tracing is all that takes time."""
    if size != 2:
        pytest.skip("more ranks prove nothing new")
    folder = tmp_path / f"of_rank_{rank}"

    def run(*preempted: int):
        job, model, seen = Job(rank, size, folder), None, []
        for number, make in enumerate(PROGRAMS[program]):
            model = make() if make else model
            seen.append(job.fit(model, number in preempted))
            if number in preempted:
                break
        return seen

    last = len(PROGRAMS[program]) - 1
    in_the_last = run(last)
    assert [seen.seen for seen, _ in in_the_last] == [ALL] * last + [up_to(EPOCH, BATCH)]
    in_the_first = run(0)
    assert [seen.seen for seen, _ in in_the_first] == [up_to(EPOCH, BATCH)]
    assert len(list(folder.glob("[!.]*"))) == 2 if rank == 0 else not folder.exists()
    in_none = run()
    assert [seen.seen for seen, _ in in_none] == [REST] + [ALL] * (last - 1) + [REST]
    np.testing.assert_array_equal(in_none[0][1], in_the_first[0][0].weights)
    np.testing.assert_array_equal(in_none[last][1], in_the_last[last][0].weights)
    assert rank or not list(folder.iterdir())


def test_names_tell_equal_trainings_apart(hvd, rank, size, tmp_path):
    """A program that skips what it has finished: its second training is the first of the new process."""
    if size != 2:
        pytest.skip("more ranks prove nothing new")
    job = Job(rank, size, tmp_path / str(rank))
    job.fit(dense_model(), name="fold-0")
    first, _ = job.fit(dense_model(), preempted=True, name="fold-1")
    again, starts = Job(rank, size, tmp_path / str(rank)).fit(dense_model(), name="fold-1")
    assert again.seen == REST
    np.testing.assert_array_equal(starts, first.weights)
    job.fit(dense_model(), preempted=True, name="fold-1")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        other, _ = job.fit(dense_model())
    assert other.seen == ALL
    told = [one for one in caught if "holds what was saved of other trainings (fold-1.)" in str(one.message)]
    assert len(told) == (rank == 0)
    with pytest.raises(ValueError, match="`name` must be made of letters"):
        hvk.callbacks.PreemptionCheckpoint(tmp_path, name="../fold")


def test_what_cannot_be_saved_is_an_error_on_every_rank(hvd, rank, size, tmp_path):
    """On rank 0 alone the folder cannot be made: a file is in its place."""
    place = tmp_path / f"of_rank_{rank}"
    place.write_text("in the way")
    with pytest.raises(OSError, match="Rank 0 could not"):
        fit(rank, size, Signals(sends=rank == 0), hvk.callbacks.PreemptionCheckpoint(place / "folder", exit_code=None))

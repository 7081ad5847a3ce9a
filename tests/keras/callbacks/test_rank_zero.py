"""on_rank_zero: files are written by rank 0, and what it restores reaches all ranks."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.support.keras_training import dense_data, dense_model, distance, flat_weights, part_of
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

on_rank_zero = hvk.callbacks.on_rank_zero
EPOCHS, INTERRUPTED = 5, 3


class Interrupt(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == INTERRUPTED:
            raise KeyboardInterrupt


class EpochsRun(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.epochs = []

    def on_epoch_begin(self, epoch, logs=None):
        self.epochs.append(epoch)


def fit(rank: int, size: int, *more, epochs: int = 2, scale: float = 1.0) -> keras.Model:
    model = dense_model()
    model.set_weights([scale * weight for weight in model.get_weights()])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    x, y = (part_of(array, rank, size) for array in dense_data(size, 4))
    model.fit(x, y, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=list(more))
    return model


@pytest.mark.parametrize("kind", ["ModelCheckpoint", "CSVLogger", "TensorBoard"])
def test_only_rank_zero_writes(hvd, rank, size, tmp_path, kind):
    path = tmp_path / f"of_rank_{rank}.keras"
    callback = on_rank_zero(getattr(keras.callbacks, kind)(str(path)))
    assert isinstance(callback, getattr(keras.callbacks, kind)) == (rank == 0)
    if kind == "TensorBoard":
        pytest.importorskip("tensorboard", reason="TensorBoard is not installed, and its callback cannot write")
    fit(rank, size, callback)
    assert path.exists() == (rank == 0)


@pytest.mark.parametrize("save_freq", [2, *in_full("epoch")])
def test_all_ranks_go_on_where_rank_zero_was_interrupted(hvd, rank, size, mpi, tmp_path, save_freq):
    """The folders differ, so that no other rank finds a backup; a restarted rank has other weights at first.

    With batches counted, Keras runs the epoch of the last backup again, on other weights than the first time.
    """
    if size == 3 and save_freq != "epoch":
        pytest.skip("three ranks prove nothing new")
    folder = tmp_path / f"of_rank_{rank}"

    def backup():
        return on_rank_zero(keras.callbacks.BackupAndRestore(str(folder), save_freq=save_freq))

    with pytest.raises(KeyboardInterrupt):
        fit(rank, size, backup(), Interrupt(), epochs=EPOCHS)
    assert folder.exists() == (rank == 0)
    run = EpochsRun()
    model = fit(rank, size, backup(), run, epochs=EPOCHS, scale=2.0 + rank)
    weights = flat_weights(model)
    assert len({theirs.tobytes() for theirs in mpi.allgather(weights)}) == 1
    assert len(set(mpi.allgather(tuple(run.epochs)))) == 1
    if save_freq == "epoch":
        assert run.epochs == list(range(INTERRUPTED, EPOCHS))
        assert int(model.optimizer.iterations.numpy()) == 4 * EPOCHS
        assert distance(weights, flat_weights(fit(rank, size, epochs=EPOCHS))) < 1e-6
    assert not folder.exists()


def test_without_a_backup_nothing_is_sent(hvd, rank, size, tmp_path):
    callback = on_rank_zero(keras.callbacks.BackupAndRestore(str(tmp_path / f"of_rank_{rank}")))
    model = dense_model()
    model.set_weights([weight + rank for weight in model.get_weights()])
    before = flat_weights(model)
    callback.set_model(model)
    callback.on_train_begin()
    np.testing.assert_array_equal(flat_weights(model), before)


def test_a_bad_backup_is_an_error_on_all_ranks(hvd, rank, size, tmp_path):
    folder = tmp_path / f"of_rank_{rank}"
    folder.mkdir()
    (folder / "latest.weights.h5").write_text("no weights")
    error = OSError if rank == 0 else RuntimeError
    with pytest.raises(error, match=None if rank == 0 else "Rank 0 could not restore its backup: OSError"):
        fit(rank, size, on_rank_zero(keras.callbacks.BackupAndRestore(str(folder))))


def test_an_unbuilt_model_is_an_error_on_all_ranks(hvd, rank, size, tmp_path):
    callback = on_rank_zero(keras.callbacks.BackupAndRestore(str(tmp_path / f"of_rank_{rank}")))
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", loss="mse")
    with pytest.raises((ValueError, RuntimeError), match="built before you call"):
        model.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0, callbacks=[callback])


def test_ranks_that_help_to_save_are_called_in_the_step(hvd, tmp_path):
    """Not by a thread that Keras starts for hooks that it believes to do nothing, beside the next step."""
    callback = on_rank_zero(keras.callbacks.ModelCheckpoint(str(tmp_path / "model.keras"), save_freq=3))
    assert not getattr(callback.on_train_batch_end, "_is_default", False)


def test_what_must_run_everywhere_is_refused(hvd):
    for callback in (keras.callbacks.EarlyStopping(), keras.callbacks.ReduceLROnPlateau()):
        with pytest.raises(ValueError, match="must run on all ranks"):
            on_rank_zero(callback)
    with pytest.raises(TypeError, match="one by one"):
        on_rank_zero([keras.callbacks.CSVLogger("log.csv")])


def test_a_backup_of_a_state_that_will_be_cut_is_refused_before_training(hvd, size, tmp_path):
    """Also while the optimizer has no variables yet."""
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(), partition_state="world"), loss="mse")
    callback = on_rank_zero(keras.callbacks.BackupAndRestore(str(tmp_path)))
    x = np.ones((4, 3))
    if size == 1:
        model.fit(x, x[:, :2], verbose=0, callbacks=[callback])
        return
    refused = "BackupAndRestore would keep rank 0's part only .*partition_state='world'"
    with pytest.raises(NotImplementedError, match=refused):
        model.fit(x, x[:, :2], verbose=0, callbacks=[callback])

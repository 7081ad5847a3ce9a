"""BestModelCheckpoint: rank 0 alone saves the best model, whole."""

from __future__ import annotations

import resource

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.support.callback_models import fit, model_of_rank
from tests.support.keras_training import flat_weights

pytestmark = pytest.mark.ranks("2")

callbacks = hvk.callbacks


def run_epochs(checkpoint, model, losses) -> None:
    """What `fit` would tell the callback, without training."""
    checkpoint.set_model(model)
    checkpoint.set_params({})
    checkpoint.on_train_begin()
    for epoch, loss in enumerate(losses):
        checkpoint.on_epoch_begin(epoch)
        checkpoint.on_epoch_end(epoch, {"val_loss": loss})


def test_rank_0_alone_saves_the_best_model(hvd, rank, size, tmp_path):
    model = model_of_rank(rank)
    checkpoint = callbacks.BestModelCheckpoint(filepath=tmp_path / "epoch{epoch}.keras")
    run_epochs(checkpoint, model, [1.0, 2.0, 0.5])
    saved = sorted(path.name for path in tmp_path.iterdir())
    assert saved == (["epoch1.keras", "epoch3.keras"] if rank == 0 else [])
    if rank == 0:
        loaded = keras.models.load_model(tmp_path / "epoch3.keras")
        np.testing.assert_array_equal(flat_weights(loaded), flat_weights(model))


def test_the_checkpoint_in_fit(hvd, rank, size, mpi, tmp_path):
    """With the mean of the metrics before it and a wrapped optimizer; a whole epoch may pass while rank 0 saves."""
    model = model_of_rank(rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss=keras.losses.MeanSquaredError())
    checkpoint = callbacks.BestModelCheckpoint("loss", filepath=tmp_path / "best.keras")
    history = fit(
        model,
        rank,
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.MetricAverageCallback(),
        checkpoint,
        epochs=3,
    ).history
    assert (tmp_path / "best.keras").exists() == (rank == 0)
    if rank == 0:
        assert checkpoint.best == min(history["loss"])


def test_a_full_disk_leaves_the_best_model_as_it_was(hvd, rank, tmp_path):
    """A limit on the size of files stands for the disk."""
    model = model_of_rank(rank)
    checkpoint = callbacks.BestModelCheckpoint(filepath=tmp_path / "best.keras")
    run_epochs(checkpoint, model, [1.0])
    before = flat_weights(model)
    model.set_weights([weight + 1 for weight in model.get_weights()])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        if rank == 0:
            with pytest.raises(OSError, match=r"could not be saved to '.*best.keras': .*too large.* is unchanged"):
                checkpoint.on_epoch_end(1, {"val_loss": 0.5})
        else:
            checkpoint.on_epoch_end(1, {"val_loss": 0.5})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == (["best.keras"] if rank == 0 else [])
    if rank == 0:
        np.testing.assert_array_equal(flat_weights(keras.models.load_model(tmp_path / "best.keras")), before)
    assert checkpoint.model is model


def test_the_best_model_is_not_written_through_links(hvd, rank, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("of somebody else")
    (tmp_path / "best.keras").symlink_to(other / "file")
    (tmp_path / ".unfinished-best.keras").mkdir()  # of a process that was killed
    (tmp_path / ".unfinished-best.keras" / "link").symlink_to(other)
    run_epochs(callbacks.BestModelCheckpoint(filepath=tmp_path / "best.keras"), model_of_rank(rank), [1.0])
    assert (other / "file").read_text() == "of somebody else"
    if rank == 0:
        assert not (tmp_path / "best.keras").is_symlink()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["best.keras", "other"]


def test_weights_only_and_a_path_that_comes_later(hvd, rank, tmp_path):
    checkpoint = callbacks.BestModelCheckpoint("val_loss", 0, True, "min", "epoch")  # Horovod's order
    checkpoint.filepath = tmp_path / "best.weights.h5"
    run_epochs(checkpoint, model_of_rank(rank), [1.0])
    assert (tmp_path / "best.weights.h5").exists() == (rank == 0)


def test_wrong_paths_are_refused_on_every_rank(hvd, rank):
    with pytest.raises(ValueError, match=r"must end in .weights.h5.*Received: filepath='best.keras'"):
        callbacks.BestModelCheckpoint(save_weights_only=True, filepath="best.keras")
    with pytest.raises(ValueError, match="looks like a file"):
        callbacks.BestModelCheckpoint("best.keras")
    checkpoint = callbacks.BestModelCheckpoint()
    with pytest.raises(ValueError, match="must end in .keras or .h5"):
        checkpoint.filepath = "best.txt"
    with pytest.raises(ValueError, match="needs a file to save to"):
        run_epochs(checkpoint, model_of_rank(rank), [1.0])

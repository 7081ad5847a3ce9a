"""Callbacks that compare or copy things between ranks: broadcast, metrics, checkpoints."""

from __future__ import annotations

import resource
import types
import warnings

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.native_module import core
from tests.parallel.keras_training import flat_weights, same_on_all_ranks

callbacks = hvk.callbacks
ROWS = 8


class AtFirstBatch(keras.callbacks.Callback):
    """Remembers the variables just before the first batch."""

    def on_train_begin(self, logs=None):
        self.seen = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.seen is None:
            self.seen = values_of(self.model)


def values_of(model) -> list[np.ndarray]:
    return [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]


def layers_with_state() -> list[keras.layers.Layer]:
    return [keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(2)]


def model_of_rank(rank: int, built: bool = True) -> keras.Model:
    """Other weights, statistics and seeds on every rank."""
    keras.utils.set_random_seed(100 + rank)
    model = keras.Sequential([keras.Input((3,)), *layers_with_state()] if built else layers_with_state())
    if built:
        model.layers[1].moving_mean.assign([float(rank)] * 4)
    return model


def fit(model, rank: int, *more, epochs: int = 1, **options):
    random = np.random.default_rng(rank)
    x, y = random.normal(size=(ROWS, 3)).astype(np.float32), random.normal(size=(ROWS, 2)).astype(np.float32)
    return model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=list(more), **options)


# --- BroadcastGlobalVariablesCallback ---


@pytest.mark.parametrize("root", ["first", "last"])
def test_a_built_model_is_equal_before_its_first_batch(hvd, rank, size, mpi, root):
    root_rank = 0 if root == "first" else size - 1
    model = model_of_rank(rank)
    of_root = mpi.bcast([variable.numpy() for variable in model.variables], root_rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"])
    recorder = AtFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(root_rank), recorder)
    assert same_on_all_ranks(mpi, recorder.seen)
    for expected, seen in zip(of_root, recorder.seen):
        np.testing.assert_array_equal(expected, seen)


def test_the_optimizer_of_the_root_is_copied(hvd, rank, size, mpi):
    """Rank 0 comes back from a checkpoint, the others have nothing yet."""
    model = model_of_rank(rank)
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1 / (rank + 1), momentum=0.9))
    model.compile(optimizer, loss="mse")
    if rank == 0:
        optimizer.build(model.trainable_variables)
        optimizer.iterations.assign(7)
        for buffer in optimizer.momentums:
            buffer.assign(buffer + 0.5)
    recorder = AtFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(0), recorder)
    assert same_on_all_ranks(mpi, recorder.seen)
    assert int(optimizer.iterations.numpy()) == 7 + ROWS // 2
    assert float(optimizer.learning_rate.numpy()) == pytest.approx(0.1)


@pytest.mark.parametrize("who_is_built", ["nobody", "rank 0", "all but rank 0"])
def test_an_unbuilt_model_is_equal_after_its_first_batch(hvd, rank, size, mpi, who_is_built):
    built = {"nobody": False, "rank 0": rank == 0, "all but rank 0": rank > 0}[who_is_built]
    model = model_of_rank(rank, built)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"])

    class AfterFirstBatch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                self.seen = [weight.numpy() for weight in (*self.model.variables, *self.model.optimizer.variables)]

    recorder = AfterFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(0), recorder)
    assert same_on_all_ranks(mpi, recorder.seen)
    assert same_on_all_ranks(mpi, [variable.numpy() for variable in model.trainable_variables])


def test_variables_that_stay_local(hvd, rank, size, mpi):
    model = model_of_rank(rank)
    mean = model.layers[1].moving_mean
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    recorder = AtFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[mean]), recorder)
    position = next(i for i, variable in enumerate(model.variables) if variable is mean)
    np.testing.assert_array_equal(recorder.seen[position], [float(rank)] * 4)
    del recorder.seen[position]
    assert same_on_all_ranks(mpi, recorder.seen)


@pytest.mark.parametrize("how", ["subclass", "instance"])
def test_variables_registered_when_the_first_batch_ends(hvd, rank, size, mpi, how):
    """As distributed-embeddings does it: with Horovod nothing has been sent by then."""
    model = model_of_rank(rank)
    mean = model.layers[1].moving_mean
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")

    class Registers(callbacks.BroadcastGlobalVariablesCallback):
        def on_batch_end(self, batch, logs=None):
            if batch == 0:
                before.append(mean.numpy())
                self.register_local_var(mean)
            super().on_batch_end(batch, logs)
            after.append([mean.numpy(), *(variable.numpy() for variable in self.model.trainable_variables)])

    before, after = [], []
    callback = Registers(0)
    if how == "instance":
        callback = callbacks.BroadcastGlobalVariablesCallback(0)
        callback.raw_on_batch_end = callback.on_batch_end

        def on_batch_end(self, batch, logs=None):
            if batch == 0:
                before.append(mean.numpy())
                self.register_local_var(mean)
            self.raw_on_batch_end(batch, logs)
            after.append([mean.numpy(), *(variable.numpy() for variable in self.model.trainable_variables)])

        callback.on_batch_end = types.MethodType(on_batch_end, callback)
    fit(model, rank, callback)
    np.testing.assert_array_equal(after[0][0], before[0])
    assert size == 1 or np.ptp(mpi.allgather(before[0][0])) > 0, "nothing was different"
    for values in after:
        assert same_on_all_ranks(mpi, values[1:])


@pytest.mark.parametrize("built", [True, False], ids=["built", "unbuilt"])
def test_a_hook_that_replaces_ours(hvd, rank, size, mpi, built):
    """`on_train_batch_end` is not Horovod's place: what exists is sent before. What does not exist then never is."""

    class Replaces(callbacks.BroadcastGlobalVariablesCallback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    model = model_of_rank(rank, built)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    recorder = AtFirstBatch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, rank, Replaces(0), recorder)
    told = [warning for warning in caught if "Replaces has sent no variables in this `fit`" in str(warning.message)]
    assert len(told) == (not built and rank == 0 and size > 1)
    assert not built or same_on_all_ranks(mpi, recorder.seen)


def test_a_variable_registered_too_late(hvd, rank, size):
    """What has been sent cannot be taken back."""
    model = model_of_rank(rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    callback = callbacks.BroadcastGlobalVariablesCallback(0)
    late = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: callback.register_local_var(model.layers[1].moving_mean)
    )
    with pytest.warns(UserWarning, match="has been sent already.*before `fit`"):
        fit(model, rank, callback, late)
    fit(model, rank, callback)  # and from now on it stays


def test_every_fit_broadcasts_anew(hvd, rank, size, mpi):
    model = model_of_rank(rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    recorder, broadcast = AtFirstBatch(), callbacks.BroadcastGlobalVariablesCallback(0)
    fit(model, rank, broadcast, recorder)
    model.layers[0].kernel.assign(model.layers[0].kernel + rank)
    fit(model, rank, broadcast, recorder)
    assert same_on_all_ranks(mpi, recorder.seen)


# --- callbacks that some ranks lack ---


@pytest.mark.parametrize(
    ("make", "name", "lonely"),
    [
        (lambda: callbacks.BroadcastGlobalVariablesCallback(0), "BroadcastGlobalVariablesCallback", -1),
        (lambda: callbacks.MetricAverageCallback(), "MetricAverageCallback", 0),
        (lambda: callbacks.LearningRateWarmupCallback(0.1), "LearningRateWarmupCallback", -1),
        (lambda: callbacks.PreemptionCheckpoint("/nowhere"), "PreemptionCheckpoint", 0),
        (lambda: callbacks.on_rank_zero(keras.callbacks.BackupAndRestore("/nowhere")), "BackupAndRestore", 0),
        (lambda: hvk.elastic.CommitStateCallback(None), "CommitStateCallback", 0),
    ],
)
def test_a_callback_for_all_ranks_on_one_of_them(hvd, rank, size, make, name, lonely):
    if size == 1:
        pytest.skip("one rank has no other")
    model = model_of_rank(0)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    lonely %= size
    with pytest.raises(ValueError, match=rf"`fit` needs {name} on all ranks.*rank\(s\) \[{lonely}\] only"):
        fit(model, rank, LogsSeen(), *([make()] if rank == lonely else []))
    fit(model, rank, *([LogsSeen()] if rank == lonely else []))  # one that is not ours may be


# --- MetricAverageCallback ---


class LogsSeen(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.logs = dict(logs)


def test_later_callbacks_and_the_history_see_the_mean(hvd, rank, size, mpi):
    model = model_of_rank(rank)
    model.compile(keras.optimizers.SGD(0.01), loss="mse", metrics=["mae"])
    before, after = LogsSeen(), LogsSeen()
    x, y = np.full((4, 3), float(rank), np.float32), np.zeros((4, 2), np.float32)
    history = fit(model, rank, before, callbacks.MetricAverageCallback(), after, validation_data=(x, y)).history
    everybody = mpi.allgather(before.logs)
    assert sorted(after.logs) == ["loss", "mae", "val_loss", "val_mae"]
    assert size == 1 or len({logs["loss"] for logs in everybody}) > 1, "the ranks had nothing to average"
    for key, value in after.logs.items():
        assert value == pytest.approx(np.mean([logs[key] for logs in everybody]), rel=1e-12)
        assert history[key] == [value]
    assert all(theirs == after.logs for theirs in mpi.allgather(after.logs))


def test_logs_are_averaged_in_place_whatever_their_order_and_type(hvd, rank, size):
    mean = (size - 1) / 2
    entries = [
        ("b", rank),
        ("a", np.float32(2 * rank)),
        ("per_class", np.array([rank, -rank, 1.0])),
        ("note", f"rank {rank}"),
        ("flag", True),
    ]
    logs = dict(entries if rank % 2 else entries[::-1])
    callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    assert logs["b"] == mean
    assert logs["a"] == 2 * mean
    np.testing.assert_allclose(logs["per_class"], [mean, -mean, 1.0])
    assert logs["note"] == f"rank {rank}"
    assert logs["flag"] is True


@pytest.mark.parametrize("logs", [None, {}])
def test_no_logs(hvd, logs):
    callbacks.MetricAverageCallback().on_epoch_end(0, logs)


def test_ranks_with_different_metrics_are_told_so(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank cannot differ")
    logs = {"loss": 1.0, ("val_loss" if rank == size - 1 else "accuracy"): 2.0}
    with pytest.raises(ValueError, match=rf"same metrics on all ranks.*accuracy.*rank 0.*val_loss.*rank {size - 1}"):
        callbacks.MetricAverageCallback().on_epoch_end(0, logs)


# --- BestModelCheckpoint ---


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


# --- what users see of all this when a rank does not come ---


def test_requests_are_named_after_what_the_script_calls(hvd, rank, size, tmp_path):
    core().trace_start()
    model = model_of_rank(rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse", metrics=["mae"])
    uneven = np.zeros((2 * (rank + 1), 3), np.float32), np.zeros((2 * (rank + 1), 2), np.float32)
    chosen = [
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.MetricAverageCallback(),
        callbacks.PreemptionCheckpoint(tmp_path / "saved"),
        callbacks.on_rank_zero(keras.callbacks.BackupAndRestore(tmp_path / "backup")),
        keras.callbacks.TerminateOnNaN(),
    ]
    model.fit(*uneven, batch_size=2, epochs=2, verbose=0, callbacks=chosen)
    hvk.evaluate(model, *uneven, verbose=0)
    events = core().trace_stop()
    names = {event["name"] for event in events if event["what"] == "op_announced"}
    assert not [name for name in names if "smddp" in name]
    if size > 1:
        for call in ("model.fit", "hvd.evaluate", "MetricAverageCallback", "BroadcastGlobalVariablesCallback"):
            assert [name for name in names if name.startswith(f"{call} (")], names

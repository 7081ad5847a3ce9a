"""Throughput: its values in the logs, what TensorBoard and the profiler get of it, and who asks whom."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.callback_models import LogsSeen
from tests.support.keras_training import dense_model
from tests.support.measured_fit import ROWS, batches, fit
from tests.support.process_sets import mine

pytestmark = pytest.mark.ranks("2")

STEPS, PAUSE = 6, 0.2
VALUES = {"samples_per_second", "step_seconds", "input_seconds", "computing_seconds", "exposed_seconds"}


class Late(keras.callbacks.Callback):
    """This rank is late by so many seconds in every step."""

    async_safe = True

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(self.seconds)


class LastBatch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.logs = dict(logs)


def test_values_of_an_epoch(hvd, rank, size, tmp_path):
    """The last rank is late: what it takes is computation there, exposed elsewhere, and the spread of all."""
    file, last = tmp_path / "log.csv", LastBatch()
    pause = PAUSE if rank == size - 1 else 0.0
    began = time.perf_counter()
    throughput = hvk.callbacks.Throughput()
    history = fit(batches(rank, STEPS), throughput, keras.callbacks.CSVLogger(str(file)), last, Late(pause)).history
    took = time.perf_counter() - began
    everybody = hvd.allgather_object({key: history[key] for key in history if key not in ("loss",)})
    assert all(each == everybody[0] for each in everybody)
    assert set(history) >= VALUES
    second = {key: values[1] for key, values in history.items()}
    parts = second["input_seconds"] + second["computing_seconds"] + second["exposed_seconds"]
    assert parts == pytest.approx(second["step_seconds"])
    assert PAUSE <= second["step_seconds"] < took / STEPS
    samples = sum(STEPS * (ROWS - other % 2) for other in range(size))
    assert second["samples_per_second"] == pytest.approx(samples / (STEPS * second["step_seconds"]), rel=1e-6)
    if size > 1:
        assert second["rank_spread"] > 0.5
        assert second["exposed_seconds"] > 0.5 * PAUSE * (size - 1) / size
        assert 0.0 <= second["hidden_share"] <= 1.0
    assert float(list(csv.DictReader(file.open()))[1]["samples_per_second"]) == second["samples_per_second"]
    running = last.logs["samples_per_second"] / ((ROWS - rank % 2) * size)
    assert running == pytest.approx(1 / last.logs["step_seconds"])
    assert "rank_spread" not in last.logs


def test_only_some_ranks_have_it(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank")
    with pytest.raises(ValueError, match="Throughput on all ranks or on none"):
        fit(batches(rank, 2), *([hvk.callbacks.Throughput()] if rank == 0 else []))


def test_one_of_two_measures(hvd, rank):
    seen = LogsSeen()
    fit(batches(rank, 3), hvk.callbacks.Throughput(), hvk.callbacks.Throughput(), seen, epochs=1)
    assert seen.logs["samples_per_second"] > 0


def test_ranks_of_process_sets_do_not_ask_each_other(hvd, rank, size, sets):
    """Only the members train, and rank by rank a different number of epochs outside."""
    for process_set in mine(sets):
        model = dense_model()
        optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.01), process_set=process_set)
        model.compile(optimizer, "mse", jit_compile=False)
        history = model.fit(batches(rank, 2), verbose=0, callbacks=[hvk.callbacks.Throughput()]).history
        assert history["samples_per_second"][0] == pytest.approx(
            (ROWS - rank % 2) / history["step_seconds"][0], rel=1e-6
        )
        assert "rank_spread" not in history
    alone = dense_model()
    alone.compile("sgd", "mse", jit_compile=False)
    logs = alone.fit(batches(rank, 1), epochs=rank + 1, verbose=0, callbacks=[hvk.callbacks.Throughput()]).history
    assert len(logs["samples_per_second"]) == rank + 1


def summaries(folder: Path) -> dict[str, list[float]]:
    """The values of each scalar."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [float(tf.make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
        if tag.startswith(("epoch_", "batch_", "throughput/"))
    }


def test_tensorboard_writes_one_run(hvd, rank, size, shared_folder):
    """A callback on all ranks, with a folder that differs as one that is named by the time does."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed, and its callback cannot write")
    board = keras.callbacks.TensorBoard(str(shared_folder / f"run-{rank}"), update_freq=1)
    history = fit(batches(rank, 2), hvk.callbacks.Throughput(), board).history
    hvd.barrier()
    assert [path.name for path in shared_folder.iterdir()] == ["run-0"]
    if rank == 0:
        found = summaries(shared_folder / "run-0" / "train")
        keys = VALUES | ({"rank_spread", "hidden_share"} if size > 1 else set())
        for key in keys:
            np.testing.assert_allclose(found[f"throughput/{key}"], history[key], rtol=1e-6)
        np.testing.assert_allclose(found["epoch_loss"], history["loss"], rtol=1e-6)
        assert found["throughput/batch_samples_per_second"]
        assert len(found["batch_loss"]) == 4
        assert not [tag for tag in found if not tag.startswith("throughput/") and any(key in tag for key in keys)]


def test_the_profiler_shows_steps(hvd, rank, tmp_path):
    with tf.profiler.experimental.Profile(str(tmp_path)):
        fit(batches(rank, 4), hvk.callbacks.Throughput(), epochs=1)
    [file] = tmp_path.rglob("*.xplane.pb")
    content = file.read_bytes()
    assert b"step_num" in content
    assert b"train" in content

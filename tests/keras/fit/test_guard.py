"""All callbacks together: on which ranks they must be, and the names of their requests."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.native_module import core
from tests.support.callback_models import LogsSeen, fit, model_of_rank

pytestmark = pytest.mark.ranks("2")

callbacks = hvk.callbacks


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

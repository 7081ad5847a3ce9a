"""MetricAverageCallback: the ranks' metrics become their mean."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.support.callback_models import LogsSeen, fit, model_of_rank

pytestmark = pytest.mark.ranks("2")

callbacks = hvk.callbacks


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

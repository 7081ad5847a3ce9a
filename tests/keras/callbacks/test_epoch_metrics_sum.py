"""MetricSumCallback: epoch metrics are those of one process on the data of all ranks."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.keras.callbacks.summed_metrics import BATCH, build, fit, part_of_rank
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")


def of_keras() -> list:
    return [
        "accuracy",
        keras.metrics.AUC(name="auc"),
        keras.metrics.Precision(name="precision"),
        keras.metrics.Recall(name="recall"),
        keras.metrics.RootMeanSquaredError(name="rmse"),
        keras.metrics.BinaryIoU(name="iou"),
    ]


def two_of_keras() -> list:
    """Metrics that take less time to trace, where it is not them that is tested."""
    return ["accuracy", keras.metrics.AUC(name="auc", num_thresholds=20)]


def whole(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.concatenate(arrays) for arrays in zip(*(part_of_rank(rank, seed) for rank in range(size))))


@pytest.mark.parametrize("validation_freq", [2, *in_full(1)])
def test_metrics_are_those_of_one_process(hvd, rank, size, mpi, validation_freq):
    validation = tf.data.Dataset.from_tensor_slices(part_of_rank(rank, 1)).batch(BATCH)
    history = fit(build(of_keras()), rank, validation_data=validation, validation_freq=validation_freq)
    alone = build(of_keras(), distributed=False)
    expected = {
        f"{prefix}{key}": value
        for prefix, seed in (("", 0), ("val_", 1))
        for key, value in alone.evaluate(*whole(size, seed), return_dict=True, verbose=0).items()
    }
    assert sorted(history) == sorted(expected)
    for key, values in history.items():
        epochs = 2 // validation_freq if key.startswith("val_") else 2
        assert values == pytest.approx([expected[key]] * epochs, rel=1e-6), key
    assert all(theirs == history for theirs in mpi.allgather(history))


def test_later_callbacks_see_them_and_the_metrics_stay_this_ranks_own(hvd, rank, size, mpi):
    class Seen(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.logs, self.own = dict(logs), float(self.model.get_metrics_result()["auc"])

    seen = Seen()
    history = fit(build(two_of_keras()), rank, seen, epochs=1)
    assert seen.logs == {key: values[0] for key, values in history.items()}
    own = build(two_of_keras(), distributed=False).evaluate(*part_of_rank(rank, 0), return_dict=True, verbose=0)
    assert seen.own == pytest.approx(own["auc"], rel=1e-6)
    assert size == 1 or len(set(mpi.allgather(seen.own))) > 1, "the ranks had nothing to sum"


def test_ranks_with_different_metrics_are_told_so(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank cannot differ")
    metrics = [keras.metrics.AUC(name="auc", num_thresholds=100 if rank else 50)]
    with pytest.raises(ValueError, match=r"MetricSumCallback needs the same metrics on all ranks.*of auc\[50\]"):
        fit(build(metrics), rank)


def test_an_evaluation_outside_of_fit_is_left_alone(hvd, rank):
    x, y = part_of_rank(rank, 0)
    plain = build(two_of_keras()).evaluate(x, y, return_dict=True, verbose=0)
    model = build(two_of_keras())
    callback = hvk.callbacks.MetricSumCallback()
    assert model.evaluate(x, y, return_dict=True, verbose=0, callbacks=[callback]) == plain


def distance(y_true, y_pred):
    return keras.ops.mean(keras.ops.abs(y_true - y_pred))


def test_one_number_for_a_batch_counts_as_often_as_the_batch_has_rows(hvd, rank, size):
    """So it does not depend on how the data are cut. In `fit`, in its validation, and in `hvd.evaluate`."""
    test = part_of_rank(rank, 1)
    expected = [
        build([distance], distributed=False).evaluate(*whole(size, seed), batch_size=1, verbose=0)[1] for seed in (0, 1)
    ]
    model = build([distance])
    logs = fit(model, rank, epochs=1, validation_data=test)
    evaluated = hvk.evaluate(model, *test, batch_size=BATCH, verbose=0)[1]
    np.testing.assert_allclose(
        [logs["distance"][0], logs["val_distance"][0], evaluated], [*expected, expected[1]], rtol=1e-5
    )

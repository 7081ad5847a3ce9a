"""`hvd.evaluate`: parts of any size on each rank give what one process gets for all the data."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.classifiers import FEATURES, Largest, classifier

pytestmark = pytest.mark.ranks("2")


def metrics() -> list:
    return [
        "accuracy",
        keras.metrics.AUC(name="auc"),
        keras.metrics.Precision(name="precision"),
        keras.metrics.RootMeanSquaredError(name="rmse"),
    ]


def part_of_rank(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Rank 1 has nothing, the others more and more, with more and more positive samples."""
    random = np.random.default_rng(rank)
    rows = 0 if rank == 1 else 7 + 9 * rank
    x = random.normal(size=(rows, FEATURES)).astype(np.float32)
    return x, (random.random((rows, 1)) < 0.2 + 0.3 * rank).astype(np.float32)


def whole(size: int) -> tuple[np.ndarray, np.ndarray]:
    parts = [part_of_rank(rank) for rank in range(size)]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts))


@pytest.mark.parametrize("as_dataset", [True, False])
def test_parts_give_the_result_of_the_whole(hvd, rank, size, mpi, as_dataset):
    x, y = part_of_rank(rank)
    model = classifier(metrics())
    if as_dataset:
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
        results = hvk.evaluate(model, dataset, return_dict=True, verbose=0)
    elif len(x) == 0:
        # Keras takes no arrays without rows.
        results = hvk.evaluate(model, tf.data.Dataset.from_tensor_slices((x, y)).batch(4), return_dict=True, verbose=0)
    else:
        results = hvk.evaluate(model, x, y, batch_size=4, return_dict=True, verbose=0)
    expected = classifier(metrics()).evaluate(*whole(size), batch_size=4, return_dict=True, verbose=0)
    assert list(results) == list(expected)
    assert results == pytest.approx(expected, rel=1e-5)
    assert all(theirs == results for theirs in mpi.allgather(results))
    assert "test_step" not in vars(model)


def test_results_as_a_list_and_metrics_of_ones_own(hvd, rank, size):
    x, y = part_of_rank(rank)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    parts = [classifier([Largest()]).evaluate(*part_of_rank(r), verbose=0) for r in range(size) if r != 1]
    rows = [len(part_of_rank(r)[0]) for r in range(size) if r != 1]
    results = hvk.evaluate(classifier([Largest()]), dataset, verbose=0)
    assert results == pytest.approx(np.average(parts, axis=0, weights=rows).tolist(), rel=1e-5)


def test_an_error_on_one_rank_is_one_on_all(hvd, rank, size):
    if size == 1:
        pytest.skip("there is no other rank to be told")
    x, y = part_of_rank(0)
    expected = "Data cardinality" if rank == 0 else "failed on rank 0: ValueError: Data cardinality"
    with pytest.raises((ValueError, RuntimeError), match=expected):
        hvk.evaluate(classifier([]), x, y[:4] if rank == 0 else y, verbose=0)

"""Metrics of all ranks from those of each: exact ones, and weighted means of the others."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.keras.callbacks.summed_metrics import build, fit, part_of_rank
from tests.support.classifiers import Largest, MergedLargest

pytestmark = pytest.mark.ranks("2")


class Collected(Largest):
    """The number of samples, in a metric of one's own."""

    additive_state = True

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.largest.assign_add(keras.ops.cast(keras.ops.shape(y_true)[0], "float32"))


def test_states_that_are_no_sums_become_weighted_means(hvd, rank, size):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = fit(build([Largest(), Collected(name="samples")]), rank)
    rows = [len(part_of_rank(r, 0)[0]) for r in range(size)]
    largest = [build([]).predict(part_of_rank(r, 0)[0], verbose=0).max() for r in range(size)]
    assert history["largest"] == pytest.approx([np.average(largest, weights=rows)] * 2, rel=1e-5)
    assert history["samples"] == [sum(rows)] * 2
    told = [str(each.message) for each in caught if "MetricSumCallback" in str(each.message)]
    assert len(told) == (1 if rank == 0 and size > 1 else 0)
    assert all("['largest']" in text for text in told)


def test_metrics_that_merge_their_states(hvd, rank, size):
    """Beside one whose states are sums, in `fit` and in `hvd.evaluate`."""
    metrics = lambda: [MergedLargest(), "accuracy"]  # noqa: E731
    history = fit(build(metrics()), rank)
    largest = max(build([]).predict(part_of_rank(r, 0)[0], verbose=0).max() for r in range(size))
    assert history["largest"] == pytest.approx([largest] * 2, rel=1e-6)
    results = hvk.evaluate(build(metrics()), *part_of_rank(rank, 0), verbose=0, return_dict=True)
    assert results["largest"] == pytest.approx(largest, rel=1e-6)

"""Collectives over Python values, and what `smddp_tf.keras` exports."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf
import smddp_tf.keras as hvk

pytestmark = pytest.mark.ranks("2")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("make", [float, lambda r: [r, 2.0 * r], lambda r: np.full((2, 3), r, np.float64)])
def test_allreduce_averages_values(hvd, rank, size, make):
    result = hvk.allreduce(make(float(rank)), name="value")
    np.testing.assert_allclose(result, np.mean([make(float(r)) for r in range(size)], axis=0))


def test_allreduce_takes_tensors_and_variables(hvd, rank, size):
    for value in (tf.constant([rank, 1]), tf.Variable([rank, 1]), keras.Variable([rank, 1], dtype="int32")):
        np.testing.assert_array_equal(hvk.allreduce(value, op=hvd.Sum), [sum(range(size)), size])


def test_allreduce_keeps_the_type_of_arrays(hvd):
    assert hvk.allreduce(np.float64(1.5)).dtype == tf.float64
    assert hvk.allreduce(3, op=hvd.Max).dtype == tf.int32


def test_the_order_of_arguments_is_that_of_horovod_for_keras(hvd, rank, size):
    """(value, name, average, prescale_factor, postscale_factor, op, compression)"""
    total = hvk.allreduce(float(rank + 1), "scaled", None, 2.0, 10.0, hvd.Sum, hvk.Compression.fp16)
    np.testing.assert_allclose(total, 20.0 * sum(range(1, size + 1)))


def test_the_old_argument_average(hvd, rank, size):
    with pytest.warns(DeprecationWarning):
        np.testing.assert_allclose(hvk.allreduce(float(rank), average=False), sum(range(size)))
    with pytest.raises(ValueError, match="only one of them"):
        hvk.allreduce(1.0, average=True, op=hvd.Sum)


def test_allreduce_in_a_graph(hvd, rank, size):
    reduce = tf.function(lambda x: hvk.allreduce(x, name="in_graph", op=hvd.Sum))
    np.testing.assert_allclose(reduce(tf.constant(float(rank))), sum(range(size)))


def test_allgather_of_uneven_lists(hvd, rank, size):
    gathered = hvk.allgather([float(rank)] * (rank + 1), name="uneven")
    np.testing.assert_array_equal(gathered, [float(r) for r in range(size) for _ in range(r + 1)])


def test_allgather_of_a_scalar_is_refused(hvd):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        hvk.allgather(1.0, name="scalar")


def test_broadcast_of_values(hvd, rank, size):
    root = size - 1
    assert int(hvk.broadcast(rank * 10, root, name="epoch")) == root * 10
    np.testing.assert_array_equal(hvk.broadcast([rank, 5], 0, "list"), [0, 5])


def test_the_pages_about_keras_are_true_of_both_modules():
    """`hvd` is smddp_tf.keras or smddp_tf there. So it is in the messages of smddp_tf/keras."""
    sources = [*(ROOT / "docs").glob("keras*.md"), *(ROOT / "smddp_tf" / "keras").rglob("*.py")]
    names = {name for file in sources for name in re.findall(r"\bhvd((?:\.[A-Za-z_]\w*)+)", file.read_text())}
    assert len(names) > 20
    for name in sorted(names):
        for module in (smddp_tf, hvk):
            assert functools.reduce(getattr, name[1:].split("."), module) is not None


def test_exports():
    """A Keras script needs one import: all that smddp_tf has is in smddp_tf.keras, but for TensorFlow 1's hook."""
    for name in hvk.__all__:
        assert getattr(hvk, name) is not None
    assert set(smddp_tf.__all__) - set(hvk.__all__) == {"BroadcastGlobalVariablesHook"}
    assert sorted(hvk.callbacks.__all__) == [
        "BestModelCheckpoint",
        "BroadcastGlobalVariablesCallback",
        "Diagnose",
        "LearningRateScheduleCallback",
        "LearningRateWarmupCallback",
        "MetricAverageCallback",
        "MetricSumCallback",
        "PreemptionCheckpoint",
        "Throughput",
        "UnevenBatchesCallback",
        "on_rank_zero",
    ]

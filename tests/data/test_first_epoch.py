"""`fit` says once that every rank reads everything."""

from __future__ import annotations

import os
import warnings

import keras
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.data import first_epoch

pytestmark = pytest.mark.ranks("2")


# --- fit ---


def fit(hvd, part) -> list[str]:
    """What is said of reading in two epochs over this rank's part of records of a megabyte."""
    rows = part.map(lambda record: (tf.fill([2], tf.cast(tf.strings.length(record), tf.float32)), 1.0)).batch(2)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(1e-14)), loss="mse")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows, epochs=2, verbose=0)
    return [str(each.message) for each in caught if "Every rank reads all" in str(each.message)]


def test_fit_says_once_that_every_rank_reads_everything(hvd, rank, size, mpi, tmp_path, monkeypatch):
    if size == 1:
        pytest.skip("one rank has to read everything")
    monkeypatch.setattr(first_epoch, "_LEAST", 1 << 20)
    monkeypatch.setattr(first_epoch.FirstEpoch, "_has_warned", False)
    folder = mpi.bcast(str(tmp_path))
    names = [f"{folder}/{number}" for number in range(2 * size)]
    if rank == 0:
        for number, name in enumerate(names):
            with tf.io.TFRecordWriter(name) as file:
                for record in range(4):
                    file.write(bytes((4 << 20) + 4 * number + record))
    mpi.barrier()
    dataset = tf.data.TFRecordDataset(names)
    assert fit(hvd, hvd.data.shard(dataset, by="file")) == []
    told = fit(hvd, hvd.data.shard(dataset))
    assert len(told) == (rank == 0)
    assert all(f"{2 * size} files of {os.path.getsize(names[0]) * 2 * size / 1e6:.0f} MB" in text for text in told)

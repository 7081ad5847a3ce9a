"""Ids that are sent to the ranks that have their rows: one out of range is an error of all ranks."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.embedding_models import (
    cut_model,
    data_of,
    give_first_tables,
)

pytestmark = pytest.mark.ranks("2")


@pytest.mark.parametrize("eagerly", [False, True])
def test_an_id_out_of_range_is_an_error_of_all_ranks(hvd, rank, size, eagerly):
    model = give_first_tables(cut_model(("row_wise", "column_wise", "table_wise")))
    call = (lambda x: model(x)) if eagerly else tf.function(lambda x: model(x))
    x, _ = data_of(4)
    good = {name: tf.constant(ids) for name, ids in x.items()}
    call(good)
    bad = dict(good)
    if rank == size - 1:
        bad["c"] = tf.constant([[0, 1, 2], [3, 37, 5]] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        call(bad)
    assert f"tables: an id is out of range. Received: feature c = 37 on rank {size - 1}. Expected: 0 <= id < 37" in str(
        error.value
    )
    if rank == 0:
        bad["a"] = tf.constant([1, -2, 3, 4], tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="feature [ac] = (-2|37) on rank"):
        call(bad)
    assert np.isfinite(call(good).numpy()).all()


def test_an_id_out_of_range_ends_fit_on_all_ranks(hvd, rank, size):
    model = give_first_tables(cut_model(("table_wise", "row_wise", "column_wise")))
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = data_of(8)
    if rank == 0:
        x["d"][6, 1] = -1
    with pytest.raises(tf.errors.InvalidArgumentError, match="feature .*d.* = -1 on rank 0. Expected: 0 <= id < 23"):
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    x["d"][6, 1] = 1
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)

"""DistributedEmbedding where ranks run out of data: the rows of a rank without data still get what others send."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.early_variables import with_variables
from tests.support.embedding_models import (
    cut_model,
    data_of,
    give_first_tables,
    part,
    plain_model,
    relative_distance,
    tables_of,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

BATCH = 4
PLACEMENTS = ("row_wise", "column_wise", "table_wise")


def batches_of(rank):
    """Each rank has one batch more than the rank before."""
    x, y = data_of(BATCH * (2 + rank), seed=rank)
    return [
        part(({k: v[i : i + BATCH] for k, v in x.items()}, y[i : i + BATCH]), 0, 1) for i in range(0, len(y), BATCH)
    ]


def train_jointly(model, optimizer, size, epochs, window=1):
    """Averages the gradients of the ranks that have a batch, over the passes of an update."""
    variables = model.trainable_variables
    optimizer.build(variables)
    steps = [[batches_of(rank)[step] for rank in range(size) if step < 2 + rank] for step in range(1 + size)] * epochs
    for begin in range(0, len(steps), window):
        batches = [batch for step in steps[begin : begin + window] for batch in step]
        if begin + window > len(steps):
            break
        total = [tf.zeros(variable.shape) for variable in variables]
        for x, y in batches:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x) - y) ** 2)
            total = [a + b for a, b in zip(total, tape.gradient(loss, variables))]
        optimizer.apply([grad / len(batches) for grad in total], variables)
    return model


@pytest.mark.parametrize("window", [2, *in_full(1)])
def test_ranks_with_fewer_batches(hvd, rank, size, window):
    if size == 1:
        pytest.skip("one rank cannot be uneven")
    model = give_first_tables(cut_model(PLACEMENTS))
    passes = {"gradient_accumulation_steps": window} if window > 1 else {}
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.2, **passes)), loss="mse", steps_per_execution=1)
    x, y = data_of(BATCH * (2 + rank), seed=rank)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    expected = train_jointly(give_first_tables(plain_model()), keras.optimizers.SGD(0.2), size, 2, window)
    ours = tables_of(model)
    if rank == 0:  # a mean over some of the ranks has one rounding more
        assert relative_distance(ours, tables_of(expected)) < 5e-6


@pytest.mark.parametrize("steps_per_execution", [3])
def test_steps_per_execution(hvd, rank, size, steps_per_execution):
    model, plain = give_first_tables(cut_model(PLACEMENTS)), give_first_tables(plain_model())
    x, y = data_of(6 * BATCH * size)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.2)), "mse", steps_per_execution=steps_per_execution)
    model.fit(*part((x, y), rank, size), batch_size=BATCH, shuffle=False, verbose=0)
    plain.compile(keras.optimizers.SGD(0.2), "mse")
    with_variables(plain).fit(x, y, batch_size=BATCH * size, shuffle=False, verbose=0)
    ours = tables_of(model)
    if rank == 0:
        assert relative_distance(ours, tables_of(plain)) < 1e-6


def test_an_infinity_is_skipped_by_all_ranks(hvd, rank, size, mpi):
    """Loss scale: the gradient of one rank's rows overflows; nobody updates, and the scale falls everywhere."""
    model = give_first_tables(cut_model(PLACEMENTS))
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**10)
    model.compile(hvk.DistributedOptimizer(optimizer), "mse")
    before = [variable.numpy() for variable in model.trainable_variables]
    x, y = data_of(BATCH, seed=rank)
    bad = np.where(np.arange(BATCH)[:, np.newaxis] == 0, np.float32("inf") if rank == size - 1 else y, y)
    model.fit(x, bad, batch_size=BATCH, verbose=0)
    for variable, value in zip(model.trainable_variables, before):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert set(mpi.allgather(float(model.optimizer.dynamic_scale.numpy()))) == {2.0**9}
    model.fit(x, y, batch_size=BATCH, verbose=0)
    assert any((variable.numpy() != value).any() for variable, value in zip(model.trainable_variables, before))

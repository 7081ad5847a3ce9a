"""`hvd.memory`: its numbers are those of the variables that optimizers and models then have."""

from __future__ import annotations

import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.roles.wrapping import reducer_on
from smddp_tf.keras.sharding.shards import possible_degrees
from tests.support.embedding_models import cut_model
from tests.support.sharded_models import (
    BATCH,
    FEATURES,
    HIDDEN,
    OPTIMIZERS,
    WHOLE_TENSORS,
    degree_of,
    model_of,
    trained,
)
from tests.variants import FULL

pytestmark = pytest.mark.ranks("2")

WEIGHTS = 4 * (FEATURES * HIDDEN[0] + HIDDEN[0] + HIDDEN[0] * HIDDEN[1] + HIDDEN[1] + HIDDEN[1] + 1)
MORE = {
    "accumulation": lambda: keras.optimizers.AdamW(0.01, gradient_accumulation_steps=3, use_ema=True),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10), momentum=0.9),
}
QUICK = ("sgd", "adamw", "rmsprop", "ema that overwrites", "loss scale", *MORE)
NAMES = [*OPTIMIZERS, *MORE] if FULL else QUICK


def bytes_of(variables):
    return sum(math.prod(each.shape) * tf.as_dtype(each.dtype).size for each in variables)


def parts_of(optimizer):
    state = reducer_on(optimizer).sharded()
    return [part for part, full in zip(state.parts, state.variables) if part is not full] if state else []


def largest(mpi, number):
    from mpi4py import MPI

    return mpi.allreduce(number, op=MPI.MAX)


def check(mpi, model, optimizer, degree):
    """The numbers before the optimizer is built, and after it, are those of its variables."""
    before = hvk.memory(model, optimizer, partition_state=degree).rows
    assert not optimizer.built
    optimizer.build(model.trainable_variables)
    assert hvk.memory(model, optimizer, partition_state=degree).rows == before
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    assert before[0].slots == largest(mpi, bytes_of(optimizer.variables))
    assert before[0].parts == largest(mpi, bytes_of(parts_of(inner)))
    return before[0]


@pytest.mark.parametrize("name", NAMES)
def test_slots_of_parts(hvd, mpi, shard, name):
    degree = degree_of(hvd, shard)
    model, make = model_of(), {**OPTIMIZERS, **MORE}[name]
    row = check(mpi, model, hvk.DistributedOptimizer(make(), partition_state=shard), degree)
    assert row.degree == degree
    assert hvk.memory(model, make(), partition_state=shard).rows == (row,)  # a plain optimizer


@pytest.mark.parametrize("name", NAMES)
def test_whole_slots(mpi, name):
    row = check(mpi, model_of(), hvk.DistributedOptimizer({**OPTIMIZERS, **MORE}[name]()), 1)
    assert (row.weights, row.gradients, row.parts) == (WEIGHTS, WEIGHTS, 0)


@pytest.mark.parametrize("make", WHOLE_TENSORS.values())
def test_optimizers_that_need_whole_tensors(mpi, size, make):
    check(mpi, model_of(), hvk.DistributedOptimizer(make()), 1)
    assert [row.degree for row in hvk.memory(model_of(), make(), ranks=8).rows] == [1]
    if size > 1:
        with pytest.raises(NotImplementedError, match="`partition_state` needs an optimizer whose update"):
            hvk.memory(model_of(), make(), partition_state="world")


def test_variables_of_16_bits_have_parts_of_32(hvd, mpi, shard):
    model = model_of(dtype="bfloat16")
    check(mpi, model, hvk.DistributedOptimizer(keras.optimizers.Adam(), partition_state=shard), degree_of(hvd, shard))


def test_local_variables_count_whole(hvd, mpi, shard):
    model, optimizer = model_of(), hvk.DistributedOptimizer(keras.optimizers.Adam(), partition_state=shard)
    optimizer.register_local_var(model.trainable_variables[2])
    check(mpi, model, optimizer, degree_of(hvd, shard))


def test_tables_that_are_cut_count_as_this_rank_has_them(shard):
    model = cut_model(("row_wise", "column_wise", "table_wise"))
    optimizer = hvk.DistributedOptimizer(keras.optimizers.Adam())
    row = hvk.memory(model, optimizer, partition_state=1).rows[0]
    optimizer.build(model.trainable_variables)
    assert (row.slots, row.weights) == (bytes_of(optimizer.variables), bytes_of(model.variables))
    shared = hvk.memory(model, keras.optimizers.Adam(), partition_state=shard).rows[0]
    tables = bytes_of(model.trainable_variables[:-2])
    assert shared.slots - 2 * tables == 12 + 2 * shared.parts  # those of the layer above the tables are shared


def test_sums_of_passes(rank, mpi, shard):
    model = trained(rank, keras.optimizers.SGD(0.1), partition_state=shard, backward_passes_per_step=2)
    row = hvk.memory(model, partition_state=shard).rows[0]  # the model's own optimizer
    sums = reducer_on(model.optimizer).passes.variables
    assert row.slots == largest(mpi, bytes_of(model.optimizer.variables)) + bytes_of(sums)
    assert bytes_of(sums) == WEIGHTS + 8


def test_every_degree_of_the_job(hvd, size):
    report = hvk.memory(model_of(), keras.optimizers.Adam())
    assert [row.degree for row in report.rows] == possible_degrees()
    totals = [row.total for row in report.rows]
    assert totals[-1] == min(totals)
    assert report.rows[0].total == 4 * WEIGHTS + 12 + report.rows[0].engine
    assert report.rows[0].engine > 0
    assert report.needed is None


def test_a_budget_and_ranks_that_are_not_there():
    model, optimizer = model_of(), keras.optimizers.AdamW()
    rows = hvk.memory(model, optimizer, ranks=6).rows
    assert [row.degree for row in rows] == [1, 2, 3, 6]
    report = hvk.memory(model, optimizer, ranks=6, budget=rows[2].total)
    assert report.needed == 3
    assert "is enough with partition_state=3." in str(report)
    told = json.loads(report.to_json())
    assert told["needed"] == 3
    assert told["rows"][1] == {**vars(rows[1]), "total": rows[1].total}
    nothing = hvk.memory(model, optimizer, ranks=6, budget=1000)
    assert nothing.needed is None
    assert f"too small: the least is {rows[3].total / 2**20:,.1f} MiB, with partition_state=6." in str(nothing)
    assert len(str(nothing).splitlines()) == 1 + 4 + 1


def test_activations_of_dense_layers():
    """Kept are the inputs of all layers, which are the outputs of those before, and the model's output."""
    model, optimizer = model_of(), keras.optimizers.SGD()
    per_row = 4 * (FEATURES + sum(HIDDEN) + 1)
    for batch in (BATCH, np.int64(BATCH), np.zeros((BATCH, FEATURES), np.float32)):
        assert hvk.memory(model, optimizer, batch=batch).rows[0].activations == BATCH * per_row
    assert hvk.memory(model, optimizer).rows[0].activations == 0


def test_activations_that_are_computed_again_do_not_count():
    def model_with(remat):
        x = inputs = keras.Input((8,))
        block = keras.Sequential([keras.layers.Dense(64, activation="tanh"), keras.layers.Dense(8)])
        block.build((None, 8))
        x = keras.layers.Lambda(keras.remat(block) if remat else block)(x)
        return keras.Model(inputs, x)

    if not hasattr(keras, "remat"):
        pytest.skip("this Keras has no remat")
    plain, again = (
        hvk.memory(model_with(remat), keras.optimizers.SGD(), batch=4).rows[0].activations for remat in (False, True)
    )
    assert plain == 4 * 4 * (8 + 64 + 8)  # the inputs of both layers, and the output
    assert again == 4 * 4 * (8 + 8)  # the input of what is computed again, and the output


def test_nothing_else_changes(rank):
    """A model whose memory was asked for trains as another one."""
    asked, optimizer = model_of(), keras.optimizers.Adam(0.01)
    hvk.memory(asked, optimizer, batch=BATCH)
    for one, other in zip(
        trained(rank, optimizer, asked).get_weights(), trained(rank, keras.optimizers.Adam(0.01)).get_weights()
    ):
        np.testing.assert_array_equal(one, other)


def test_mistakes(size):
    optimizer = keras.optimizers.SGD()
    with pytest.raises(ValueError, match=r"a model that is built .* model.built=False"):
        hvk.memory(keras.Sequential([keras.layers.Dense(1)]), optimizer)
    with pytest.raises(ValueError, match="optimizer=None"):
        hvk.memory(model_of())
    with pytest.raises(ValueError, match="one of `partition_state` and `ranks`"):
        hvk.memory(model_of(), optimizer, partition_state=1, ranks=2)
    with pytest.raises(ValueError, match="`partition_state` must be None"):
        hvk.memory(model_of(), optimizer, partition_state="rack")
    if size > 1:
        with pytest.raises(ValueError, match="Possible here: 1, "):
            hvk.memory(model_of(), optimizer, partition_state=size + 1)
    open_shape = keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="knows the shapes of its inputs"):
        hvk.memory(open_shape, optimizer, batch=4)
    assert hvk.memory(open_shape, optimizer, batch=np.zeros((4, 5, 3), np.float32)).rows[0].activations > 0


@pytest.mark.parametrize("name", ["adamw", "ema that overwrites"])
def test_weights_in_parts(hvd, mpi, size, monkeypatch, name):
    """The numbers for a model that is made without are those of the same model with its weights in parts."""
    monkeypatch.setattr("smddp_tf.keras.sharding.memory.MIN_ELEMENTS", 300)
    (row,) = hvk.memory(model_of(), OPTIMIZERS[name](), partition_state=size, weights=True).rows
    with hvk.partition_weights(size, min_elements=300):
        model = model_of()
    optimizer = hvk.DistributedOptimizer(OPTIMIZERS[name]())
    optimizer.build(model.trainable_variables)
    assert row.weights <= largest(mpi, bytes_of(model.variables)) < row.weights + 4 * 16 * 2 < WEIGHTS
    assert row.slots == largest(mpi, bytes_of(optimizer.variables))
    assert row.gradients == largest(mpi, bytes_of(model.trainable_variables))
    assert row.parts == 5 * 4 * HIDDEN[0] * HIDDEN[1] + row.gradients

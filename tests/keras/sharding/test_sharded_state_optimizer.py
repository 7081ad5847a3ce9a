"""`DistributedOptimizer(partition_state=...)` with everything else that optimizers and training have."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
import smddp_tf.keras.distribution
from smddp_tf.elastic.variables import TensorFlowState
from smddp_tf.keras.roles.wrapping import reducer_on
from tests.support.embedding_models import cut_model, give_first_tables, part, tables_of
from tests.support.embedding_models import data_of as data_of_tables
from tests.support.sharded_models import (
    BATCH,
    OPTIMIZERS,
    WHOLE_TENSORS,
    assert_identical,
    data_of,
    model_of,
    slot_elements,
    trained,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.Adam(0.01, clipnorm=0.05),
        lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)),
        *in_full(lambda: keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=3)),
    ],
    ids=["clipnorm", "global_clipnorm", "scaled accumulation", *in_full("accumulation")],
)
def test_what_adds_in_another_order_is_close(hvd, rank, shard, make):
    whole, ours = trained(rank, make()), trained(rank, make(), partition_state=shard)
    for one, other in zip(ours.get_weights(), whole.get_weights()):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6 * np.abs(other).max())


def test_backward_passes_per_step(rank, shard):
    options = {"backward_passes_per_step": 3, "average_aggregated_gradients": True}
    whole = trained(rank, OPTIMIZERS["adamw"](), **options)
    assert_identical(trained(rank, OPTIMIZERS["adamw"](), partition_state=shard, **options), whole, model_of())


def test_constraints_and_decay_with_exceptions(rank, shard):
    def run(**options):
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.3)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        return trained(rank, optimizer, model_of(kernel_constraint="max_norm", bias_initializer="ones"), **options)

    assert_identical(run(partition_state=shard), run(), model_of(bias_initializer="zeros"))


def test_an_infinity_on_one_rank_skips_the_step_on_all(rank, size, mpi, shard):
    def run(**options):
        model = model_of()
        model.compile(hvk.DistributedOptimizer(OPTIMIZERS["loss scale"](), **options), loss="mse")
        x, y = data_of(rank)
        scales = []
        for step in range(4):
            bad = step == 2 and rank == size - 1
            model.train_on_batch(x[:BATCH], np.full_like(y[:BATCH], np.inf) if bad else y[:BATCH])
            scales.append(float(model.optimizer.dynamic_scale.numpy()))
        return model, scales

    (whole, expected), (ours, scales) = run(), run(partition_state=shard)
    assert scales == expected
    assert scales[2] == scales[1] / 2
    assert mpi.allgather(scales) == [scales] * size
    assert_identical(ours, whole, model_of())


@pytest.mark.parametrize("way", ["eager", "graph", "xla", "variables of TensorFlow"])
def test_loops_of_the_users_own(rank, shard, way):
    x, y = data_of(rank)

    def run(**options):
        model = model_of()
        optimizer = hvk.DistributedOptimizer(OPTIMIZERS["adamw"](), **options)
        optimizer.build(model.trainable_variables)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x) - y))
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            if way == "variables of TensorFlow":
                variables = [variable.value for variable in variables]
            optimizer.apply_gradients(zip(gradients, variables))

        call = step if way == "eager" else tf.function(step, jit_compile=way == "xla")
        for first in range(0, len(x), BATCH):
            call(x[first : first + BATCH], y[first : first + BATCH])
        return model

    ours, whole, start = run(partition_state=shard), run(), model_of()
    if way != "xla":
        assert_identical(ours, whole, start)
    for one, other in zip(ours.get_weights(), whole.get_weights()):  # XLA fuses differently, and rounds differently
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * np.abs(other).max())


def test_weights_that_somebody_changes_are_kept(rank, shard):
    def run(**options):
        model = trained(rank, OPTIMIZERS["adamw"](), **options)
        model.set_weights([value * 0.5 + 0.01 for value in model.get_weights()])
        x, y = data_of(rank)
        model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
        return model

    assert_identical(run(partition_state=shard), run(), model_of())


def test_an_optimizer_that_has_state_already(rank, shard):
    def run(**options):
        optimizer = OPTIMIZERS["adam"]()
        model = model_of()
        optimizer.build(model.trainable_variables)
        for variable in optimizer.variables[2:]:
            variable.assign(np.linspace(0.1, 0.2, math.prod(variable.shape)).reshape(variable.shape))
        return trained(rank, optimizer, model, **options)

    assert_identical(run(partition_state=shard), run(), model_of())


def test_local_variables_stay_whole(rank, shard):
    def run(**options):
        model, optimizer = model_of(), OPTIMIZERS["adam"]()
        optimizer = hvk.DistributedOptimizer(optimizer, **options)
        for weight in model.layers[1].trainable_weights:
            optimizer.register_local_var(weight)
        model.compile(optimizer, loss="mse")
        x, y = data_of(rank)
        model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
        return model

    ours, whole = run(partition_state=shard), run()
    assert_identical(ours, whole, model_of())
    shapes = {tuple(variable.shape) for variable in ours.optimizer.variables}
    assert tuple(ours.layers[1].kernel.shape) in shapes
    assert tuple(ours.layers[0].kernel.shape) not in shapes


def test_embeddings(rank, shard):
    def run(**options):
        keras.utils.set_random_seed(5)
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Embedding(50, 7), keras.layers.Flatten(), keras.layers.Dense(1)]
        )
        model.compile(hvk.DistributedOptimizer(OPTIMIZERS["adam"](), **options), loss="mse")
        ids = np.random.default_rng(rank).integers(0, 50, size=(64, 3))
        model.fit(ids, ids[:, :1] / 50, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
        return model

    # Without `partition_state` the rows of the gradient travel, and are added up in another order.
    for one, other in zip(run(partition_state=shard).get_weights(), run().get_weights()):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_beside_tables_that_are_cut(rank, size, mpi, shard):
    def run(**options):
        model = give_first_tables(cut_model(("row_wise", "column_wise", "table_wise")))
        model.compile(hvk.DistributedOptimizer(OPTIMIZERS["adam"](), **options), loss="mse")
        model.fit(*part(data_of_tables(8 * size), rank, size), batch_size=4, shuffle=False, verbose=0)
        return model

    for one, other in zip(tables_of(run(partition_state=shard)), tables_of(run())):
        np.testing.assert_array_equal(one, other)


def test_16_bit_variables_have_parts_of_32_bits(hvd, rank, mpi, shard):
    """Changes too small for bfloat16 add up."""
    weight = keras.Variable(np.full((40, 3), 1.0), dtype="bfloat16", name="weight")
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), partition_state=shard)
    for step in range(16):
        optimizer.apply([tf.fill([40, 3], tf.constant(2.0**-11, tf.bfloat16))], [weight])
        expected = np.float32(1 - (step + 1) * 2.0**-11)
        assert float(weight.numpy().astype("float32").max()) == float(
            tf.cast(tf.cast(expected, tf.bfloat16), tf.float32)
        )
    values = [value.tobytes() for value in mpi.allgather(weight.numpy())]
    assert values == [values[0]] * hvd.size()
    weight.assign(np.full((40, 3), 3.0))
    optimizer.apply([tf.zeros([40, 3], tf.bfloat16)], [weight])
    assert np.all(weight.numpy().astype("float32") == 3.0)


def test_under_keras_distribution(hvd, size, shard):
    x, y = data_of(0)

    def run(**options):
        keras.distribution.initialize()
        with smddp_tf.keras.distribution.DataParallel(**options).scope():
            model = model_of()
            model.compile(OPTIMIZERS["adamw"](), loss="mse")
            model.fit(x, y, batch_size=BATCH * size, epochs=2, shuffle=False, verbose=0)
        return model

    whole, ours = run(), run(partition_state=shard)
    assert_identical(ours, whole, model_of())
    assert slot_elements(ours) < slot_elements(whole)
    x, y = data_of(0, BATCH * size)
    with pytest.raises(ValueError, match="partitioned over the ranks by DataParallel"):
        ours.fit(x, y, batch_size=BATCH, verbose=0)  # without the distribution


class OwnSlots(keras.optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        self.own = [self.add_variable(shape=variable.shape, name="own") for variable in variables]


class CopiedSlots(keras.optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        self.slow = [self.add_variable_from_reference(variable, name="slow") for variable in variables]
        for slow, variable in zip(self.slow, variables):
            slow.assign(variable)


OWN = [("OwnSlots with the slot", OwnSlots), ("CopiedSlots with the slot", CopiedSlots)]


@pytest.mark.parametrize(("named", "optimizer"), [*WHOLE_TENSORS.items(), *OWN])
def test_optimizers_that_need_whole_tensors(size, named, optimizer):
    if size == 1:
        pytest.skip("one rank has all of the state")
    wrapped = hvk.DistributedOptimizer(optimizer(), partition_state="world")
    with pytest.raises(NotImplementedError, match=f"Received: {named}"):
        wrapped.build(model_of().trainable_variables)


def test_a_state_of_variables_is_not_committed(rank, shard, tmp_path):
    model = trained(rank, OPTIMIZERS["adam"](), partition_state=shard)
    state = TensorFlowState([*model.variables, *model.optimizer.variables])
    with pytest.raises(NotImplementedError, match="saved by TensorFlowKerasState"):
        state.to_disk()


def test_process_sets_and_other_ranks(hvd, sets):
    some = next(iter(sets.values()))
    with pytest.raises(ValueError, match="`partition_state` divides the state among all ranks"):
        hvk.DistributedOptimizer(keras.optimizers.Adam(), partition_state="world", process_set=some)


def test_rank_0_writes_files_also_where_nothing_is_cut(hvd, rank, tmp_path):
    """`partition_state=1`, a node of one rank, small tables: what a script does must not depend on what is cut."""
    table = hvk.layers.TableConfig("t", 5, 2, placement="default_device")
    ids = keras.Input((), dtype="int64")
    rows = hvk.layers.DistributedEmbedding(hvk.layers.FeatureConfig("f", table, (None,), (None, 2)))(ids)
    with_table = keras.Model(ids, keras.layers.Dense(1)(rows))
    sharded = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    sharded.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(), partition_state=1), loss="mse")
    for number, model in enumerate((with_table, sharded)):
        ways = [model.save, lambda path, model=model: keras.saving.save_model(model, path), model.save_weights]
        endings = ["keras", "keras", "weights.h5"]
        for way, (save, ending) in enumerate(zip(ways, endings)):
            path = tmp_path / f"{number}_{way}_of_{rank}.{ending}"
            save(str(path))
            assert path.exists() == (rank == 0)


def test_weights_are_not_swapped_with_parts(hvd, size):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    plain = keras.optimizers.SGD(0.1, use_ema=True)
    model.compile(hvk.DistributedOptimizer(plain, partition_state="world"), loss="mse")
    swap = [keras.callbacks.SwapEMAWeights()]
    x = np.ones((4, 3))
    if size == 1:
        model.fit(x, x[:, :2], verbose=0, callbacks=swap)
        return
    with pytest.raises(NotImplementedError, match="SwapEMAWeights would exchange .*partition_state='world'"):
        model.fit(x, x[:, :2], verbose=0, callbacks=swap)


def test_the_older_name_of_the_argument(hvd, tmp_path):
    """`shard`, with a warning, by each way that takes it."""
    with pytest.warns(DeprecationWarning, match="is called `partition_state` now"):
        older = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1), shard="world")
    assert reducer_on(older).settings.partition_state == "world"
    with pytest.warns(DeprecationWarning, match="is called `partition_state` now"):
        assert reducer_on(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), shard=1)).settings.partition_state == 1
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.warns(DeprecationWarning, match="is called `partition_state` now"):
        assert [row.degree for row in hvk.memory(model, keras.optimizers.SGD(0.1), shard=1).rows] == [1]
    with pytest.warns(DeprecationWarning, match="is called `partition_state` now"):
        assert smddp_tf.keras.distribution.DataParallel(shard=1).partition_state == 1
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    model.save(tmp_path / f"{hvd.rank()}.keras")
    with pytest.warns(DeprecationWarning, match="is called `partition_state` now"):
        loaded = hvk.load_model(tmp_path / f"{hvd.rank()}.keras", shard="world")
    assert reducer_on(loaded.optimizer).settings.partition_state == "world"

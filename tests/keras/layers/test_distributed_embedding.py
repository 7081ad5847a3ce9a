"""DistributedEmbedding: what R ranks compute is what one process with Keras's own embeddings computes."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.gradients.local_sources import LocalSources
from smddp_tf.keras.roles.optimizers import local_of
from tests.support.embedding_models import (
    COLUMNS,
    ROWS,
    cut_model,
    data_of,
    features_of,
    first_tables,
    give_first_tables,
    part,
    plain_model,
    relative_distance,
    tables_of,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

STEPS, BATCH = 30, 12
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.01, momentum=0.9),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.02),
}
PLACEMENTS = ("row_wise", "column_wise", "table_wise", "default_device")


def trained(model, optimizer, x, y, batch, **options):
    model.compile(optimizer, loss="mse", **options)
    model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return model


def oracle(optimizer, size, combiner="mean", **options):
    """Trained on what the ranks have together: their samples of a step make one batch."""
    x, y = data_of(STEPS // 2 * BATCH * size)
    return trained(give_first_tables(plain_model(combiner)), optimizer, x, y, BATCH * size, **options)


def compare(model, expected, rank, tolerance=1e-6):
    ours = tables_of(model)
    if rank == 0:
        assert relative_distance(ours, tables_of(expected)) < tolerance
        moved = relative_distance(ours[:3], first_tables())
        assert moved > 0.1, "nothing was learned"


CASES = [
    (placement, optimizer, combiner)
    for placement in (*PLACEMENTS, "mixed")
    for optimizer, combiner in (("sgd", "sum"), ("adagrad", "mean"), ("adam", "sqrtn"))
]
QUICK = {("mixed", "adam"), ("default_device", "sgd")}


@pytest.mark.parametrize(
    ("placement", "optimizer", "combiner"),
    [*(case for case in CASES if case[:2] in QUICK), *in_full(*(case for case in CASES if case[:2] not in QUICK))],
)
def test_training_is_that_of_one_process(hvd, rank, size, placement, optimizer, combiner):
    placements = ("column_wise", "row_wise", "table_wise") if placement == "mixed" else (placement,) * 3
    model = give_first_tables(cut_model(placements, combiner))
    x, y = part(data_of(STEPS // 2 * BATCH * size), rank, size)
    trained(model, hvk.DistributedOptimizer(OPTIMIZERS[optimizer]()), x, y, BATCH)
    compare(model, oracle(OPTIMIZERS[optimizer](), size, combiner), rank)


class Subclassed(keras.Model):
    """What Keras builds in a `StatelessScope`: the tables, or a layer without `build` that holds them."""

    def __init__(self, placements, inside):
        super().__init__()
        self.tables = hvk.layers.DistributedEmbedding(features_of(placements, "sum"), name="tables")
        self.holder = Holder(self.tables) if inside else self.tables
        self.top = cut_model(placements).get_layer("top")

    def call(self, x):
        rows = self.holder(x)
        return self.top(tf.concat([rows[name] for name in sorted(rows)], -1))


class Holder(keras.layers.Layer):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, x):
        return self.inner(x)


@pytest.mark.parametrize("inside", [True, *in_full(False)], ids=["in a layer", *in_full("in a model")])
def test_a_subclassed_model_looks_its_own_tables_up(hvd, rank, size, inside):
    """Keras builds it twice, the first time without values."""
    x, y = part(data_of(STEPS // 2 * BATCH * size), rank, size)
    model = Subclassed(("row_wise", "table_wise", "column_wise"), inside)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adagrad(0.1)), loss="mse")
    model({name: ids[:1] for name, ids in x.items()})
    assert [tuple(variable.shape) for variable in model.tables.weights] == [
        layout.held(rank) for layout in model.tables._structure.layouts
    ]
    give_first_tables(model)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    compare(model, oracle(OPTIMIZERS["adagrad"](), size, "sum"), rank)
    variables = [each.value for each in model.trainable_variables]
    assert LocalSources().indices(variables) == ({0, 1, 2} if size > 1 else set())


def test_ragged_ids_weights_and_the_tape(hvd, rank, size):
    """A loop of the user's own with DistributedGradientTape; samples without ids, ids twice in a sample, weights."""
    table = hvk.layers.TableConfig("t", 40, 3, placement="row_wise", combiner="mean")
    other = hvk.layers.TableConfig("u", 30, 3, placement="column_wise", combiner="sqrtn")
    configs = [
        hvk.layers.FeatureConfig("ragged", table, (None, None), (None, 3)),
        {"dense": hvk.layers.FeatureConfig("dense", other, (None, 2), (None, 3))},
    ]
    layer = hvk.layers.DistributedEmbedding(configs)
    random = np.random.default_rng(1)
    lengths = random.integers(0, 4, 6 * size)
    lengths[0] = 0
    every = tf.RaggedTensor.from_row_lengths(random.integers(0, 40, lengths.sum()), lengths)
    dense = random.integers(0, 30, (6 * size, 2))
    weights = [
        every.with_values(tf.cast(random.uniform(0.5, 2, lengths.sum()), tf.float32)),
        random.uniform(0, 1, (6 * size, 2)),
    ]
    mine = slice(6 * rank, 6 * rank + 6)
    layer.build(None)
    tables = [random.normal(size=(rows, 3)).astype("float32") for rows in (40, 30)]
    layer.load_own_variables({"0": tables[0], "1": tables[1]})
    optimizer = keras.optimizers.SGD(0.5)

    @tf.function
    def step(ids, weights):
        with tf.GradientTape() as tape:
            first, second = layer(ids, weights)[0], layer(ids, weights)[1]["dense"]
            loss = tf.reduce_mean(tf.reduce_sum(tf.sin(first) * second, axis=1))
        grads = hvd.DistributedGradientTape(tape).gradient(loss, layer.trainable_variables)
        assert all(isinstance(grad, tf.IndexedSlices) for grad in grads)
        optimizer.apply_gradients(zip(grads, layer.trainable_variables))
        return first

    variables = [tf.Variable(each) for each in tables]
    for _ in range(10):
        with tf.GradientTape() as tape:
            weighted = tf.gather(variables[0], every) * weights[0][..., tf.newaxis]
            divisor = tf.reduce_sum(weights[0], axis=1)[:, tf.newaxis]
            first = tf.math.divide_no_nan(tf.reduce_sum(weighted, axis=1), divisor)
            second = tf.einsum("bid,bi->bd", tf.gather(variables[1], dense), weights[1].astype("float32"))
            second /= np.sqrt((weights[1] ** 2).sum(axis=1, keepdims=True)).astype("float32")
            loss = tf.reduce_mean(tf.reduce_sum(tf.sin(first) * second, axis=1))
        for variable, grad in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.5 * tf.convert_to_tensor(grad))
        ours = step(
            [every[mine], {"dense": tf.constant(dense[mine])}],
            [weights[0][mine], {"dense": tf.constant(weights[1][mine])}],
        )
        np.testing.assert_allclose(ours, first[mine], atol=2e-6)
    whole = layer.get_embedding_tables()
    if rank == 0:
        assert relative_distance([whole["t"], whole["u"]], [each.numpy() for each in variables]) < 1e-6
        assert not ours[0].numpy().any(), "a sample without ids is not zero"


def test_each_rank_holds_its_part_and_the_slots_of_it(hvd, rank, size, mpi, capsys):
    model = cut_model(("row_wise", "column_wise", "table_wise"))
    if rank == 0 and size > 1:
        assert "table_0  50 x 4          row_wise " in capsys.readouterr().out
    optimizer = hvk.DistributedOptimizer(keras.optimizers.Adam())
    optimizer.build(model.trainable_variables)
    shapes = [tuple(variable.shape) for variable in model.trainable_variables][:3]
    everybody = mpi.allgather(shapes)
    assert sum(shape[0][0] for shape in everybody) == ROWS[0]
    assert sum(shape[1][1] for shape in everybody) == COLUMNS[1]
    assert sorted(shape[2][0] for shape in everybody) == [1] * (size - 1) + [ROWS[2]]
    kept = [tuple(variable.shape) for variable in optimizer.variables if tuple(variable.shape) in shapes]
    assert len(kept) >= 6, "Adam keeps two for each table"


def test_nothing_sends_or_compares_the_parts(hvd, rank, size):
    """A broadcast, and the check that ranks begin alike, leave parts and their slots alone."""
    model = cut_model(("row_wise", "row_wise", "row_wise"))
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam()), loss="mse")
    model.optimizer.build(model.trainable_variables)
    for variable in [*model.variables, *model.optimizer.variables]:
        if variable.dtype == "float32" and variable.shape.rank == 2:
            variable.assign(tf.fill(variable.shape, float(rank)))
    hvd.broadcast_variables([*model.variables, *model.optimizer.variables], root_rank=0)
    state = hvd.elastic.TensorFlowKerasState(model, epoch=0)
    state.sync()
    of_tables = [v for v in (*model.variables, *model.optimizer.variables) if "table" in v.path]
    assert len(of_tables) == 9
    assert all((variable.numpy() == rank).all() for variable in of_tables)
    assert (model.get_layer("top").kernel.numpy() == 0).all()
    assert size == 1 or {id(v) for v in local_of(model)} == {id(v) for v in of_tables}


def test_what_cannot_be(hvd, rank, size):
    table = hvk.layers.TableConfig("t", 5, 2)
    for wrong in ({"placement": "everywhere"}, {"combiner": "max"}, {"vocabulary_size": 0}):
        bad = hvk.layers.TableConfig(**{"name": "t", "vocabulary_size": 5, "embedding_dim": 2, **wrong})
        with pytest.raises(ValueError, match=f"(?s)Table 't'.*{next(iter(wrong.values()))}"):
            hvk.layers.DistributedEmbedding(hvk.layers.FeatureConfig("f", bad, (None,), (None, 2)))
    same = hvk.layers.TableConfig("t", 6, 2)
    with pytest.raises(ValueError, match="need different names"):
        hvk.layers.DistributedEmbedding([hvk.layers.FeatureConfig("f", t, (None,), (None, 2)) for t in (table, same)])
    with pytest.raises(ValueError, match="must hold FeatureConfig objects"):
        hvk.layers.DistributedEmbedding({"f": 3})
    if size > 1:
        model = cut_model(("row_wise",) * 3)
        with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
            model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD()), loss="mse", jit_compile=True)
        model.fit(*data_of(4), verbose=0)
        with pytest.raises(NotImplementedError, match="'tables' cannot be compiled by XLA"):
            tf.function(lambda x: model(x), jit_compile=True)(data_of(4)[0])


def test_ragged_inputs_of_a_model_and_half_precision(hvd, rank, size, mpi):
    """A functional model under mixed_float16, whose rows travel with 16 bits."""
    if "ragged" not in inspect.signature(keras.Input).parameters:
        pytest.skip("this Keras has no ragged inputs")
    table = hvk.layers.TableConfig("t", 40, 8, placement="row_wise", combiner="sum")
    features = hvk.layers.FeatureConfig("ids", table, (None, None), (None, 8))
    ids = keras.Input((None,), dtype="int64", ragged=True)
    rows = hvk.layers.DistributedEmbedding(features, dtype="mixed_float16")(ids)
    assert (rows.shape, rows.dtype) == ((None, 8), "float16")
    model = keras.Model(ids, keras.layers.Dense(1, dtype="float32")(rows))
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    part_of_table = model.trainable_variables[0]
    assert part_of_table.dtype == "float32"
    before = part_of_table.numpy()
    x = tf.ragged.constant([[rank, 1, 1], [], [2], [3, 4]], tf.int64)
    model.fit(tf.data.Dataset.from_tensors((x, tf.ones([4, 1]))).repeat(3), verbose=0)
    touched = {row for other in range(size) for row in (other, 1, 2, 3, 4)}
    changed = np.nonzero((part_of_table.numpy() != before).any(axis=1))[0] * size + rank
    assert set(np.concatenate(mpi.allgather(changed))) == touched

"""Gradients that are tf.IndexedSlices: repeated indices, and the ways in which rows travel."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.collectives import sparse
from smddp_tf.collectives.reduce_op import ReduceSpec
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.gradients.reducer import GradientReducer
from tests.native_module import core
from tests.support.keras_training import (
    OPTIMIZERS,
    ROWS_PER_RANK,
    distance,
    embedding_model,
    one_process,
    part_of,
    train_in_loop,
    word_data,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("1", "2")

ROWS, WIDTH = 12, 3


@pytest.fixture(params=["gathered", "whole table", "small table"])
def way(request, monkeypatch, size):
    """How the rows travel: the sizes that decide it are set so that the small tables of these tests take that way."""
    if size == 1 and request.param != "gathered":
        pytest.skip("with one rank nothing travels")
    monkeypatch.setattr(sparse, "SMALL_TABLE_BYTES", 1e9 if request.param == "small table" else -1)
    monkeypatch.setattr(sparse, "GATHER_AT_MOST", 1e9 if request.param == "gathered" else -1.0)
    return request.param


def slices_of_rank(rank: int, count: int | None = None, dtype="float32") -> tf.IndexedSlices:
    """Each rank has other indices and another number of them; some repeat on the rank, some on several ranks."""
    random = np.random.default_rng(50 + rank)
    count = 7 + 2 * rank if count is None else count
    indices = random.integers(0, ROWS - 3, count)
    values = random.integers(-8, 8, (count, WIDTH)).astype(np.float32)
    return tf.IndexedSlices(tf.constant(values, dtype), tf.constant(indices), tf.constant([ROWS, WIDTH], tf.int64))


def sum_of(slices: list[tf.IndexedSlices]) -> np.ndarray:
    table = np.zeros((ROWS, WIDTH))
    for part in slices:
        np.add.at(table, part.indices.numpy(), tf.cast(part.values, tf.float64).numpy())
    return table


def reduced(run, slices: tf.IndexedSlices, dtype="float32", **settings) -> tf.IndexedSlices:
    reducer = GradientReducer("sparse", ReduceOptions(**settings))
    table = tf.Variable(tf.zeros([ROWS, WIDTH], dtype))
    return run(lambda: reducer([slices], [table])[0])


def check(result: tf.IndexedSlices, expected: np.ndarray, rtol: float = 1e-6) -> None:
    assert isinstance(result, tf.IndexedSlices)
    assert len(set(result.indices.numpy())) == len(result.indices), "an index occurs twice"
    np.testing.assert_allclose(
        tf.cast(tf.convert_to_tensor(result), tf.float64).numpy(), expected, rtol=rtol, atol=rtol
    )


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_repeated_indices_are_added_up(hvd, rank, size, run, way, op):
    expected = sum_of([slices_of_rank(r) for r in range(size)])
    result = reduced(run, slices_of_rank(rank), op=getattr(hvd, op))
    check(result, expected / size if op == "Average" else expected)
    assert result.values.dtype == tf.float32
    assert result.indices.dtype == tf.int64


def test_ranks_without_rows(hvd, rank, size, run, way):
    check(reduced(run, slices_of_rank(rank, 0)), np.zeros((ROWS, WIDTH)))
    lonely = [slices_of_rank(r, 5 if r == size - 1 else 0) for r in range(size)]
    check(reduced(run, lonely[rank], op=hvd.Sum), sum_of(lonely))


@pytest.mark.parametrize(("compression", "tolerance"), [("fp16", 1e-3), ("bf16", 8e-3)])
def test_compression(hvd, rank, size, way, compression, tolerance):
    """Values that the narrow dtype has not; they are added up in float32."""
    mine = slices_of_rank(rank)
    mine = tf.IndexedSlices(mine.values * (1 + 2**-13), mine.indices, mine.dense_shape)
    expected = hvd.allreduce(tf.convert_to_tensor(mine), op=hvd.Sum, name="expected").numpy()
    settings = {"op": hvd.Sum, "compression": getattr(hvd.Compression, compression)}
    got = tf.convert_to_tensor(reduced(lambda f: f(), mine, **settings)).numpy()
    np.testing.assert_allclose(got, expected, atol=size * 20 * tolerance)
    assert size == 1 or not np.array_equal(got, expected), "nothing was narrowed"


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_dtypes(hvd, rank, size, way, dtype):
    """Integers are always gathered."""
    result = reduced(lambda f: f(), slices_of_rank(rank, dtype=dtype), dtype, op=hvd.Sum)
    assert result.values.dtype == tf.as_dtype(dtype)
    check(result, sum_of([slices_of_rank(r) for r in range(size)]))


@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
def test_averages_of_other_dtypes(hvd, rank, size, run, dtype):
    """Integers are rounded toward zero, as those of a dense gradient are."""
    expected = sum_of([slices_of_rank(r) for r in range(size)]) / size
    result = reduced(run, slices_of_rank(rank, dtype=dtype), dtype)
    check(result, np.trunc(expected) if dtype == "int32" else expected, rtol=0.02)


def test_factors(hvd, rank, size, way):
    expected = sum_of([slices_of_rank(r) for r in range(size)])
    check(reduced(lambda f: f(), slices_of_rank(rank), gradient_predivide_factor=4.0), expected / size)
    reduction = ReduceSpec(hvd.Sum, 0.5, 3.0)
    of_rows = sparse.reduce_rows({0: slices_of_rank(rank)}, {0: tf.TensorShape([ROWS, WIDTH])}, reduction, "factors")
    check(of_rows[0], expected * 1.5)


def test_shapes_that_are_not_known_when_traced(hvd, rank, size, way):
    """As in `fit`, where the batch is open; here also the variable's number of rows."""
    reducer = GradientReducer("unknown", ReduceOptions(op=hvd.Sum))
    known = tf.Variable(tf.zeros([ROWS, WIDTH]))
    unknown = tf.Variable(tf.zeros([ROWS, WIDTH]), shape=[None, WIDTH])

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH]), tf.TensorSpec([None], tf.int64)])
    def step(values, indices):
        first = tf.IndexedSlices(values, indices, tf.constant([ROWS, WIDTH], tf.int64))
        return reducer([first, first], [known, unknown])

    for count in (None, 0, 6):  # None: another number on each rank
        of_ranks = [slices_of_rank(r, 3 + r if count is None else count) for r in range(size)]
        for result in step(of_ranks[rank].values, of_ranks[rank].indices):
            check(result, sum_of(of_ranks))


def test_ranks_decide_alike_by_the_rows_of_all(hvd, rank, size, monkeypatch):
    """One rank alone would gather, another would send the table: the sum of rows decides."""
    if size == 1:
        pytest.skip("one rank has nobody to send to")
    monkeypatch.setattr(sparse, "SMALL_TABLE_BYTES", -1)
    monkeypatch.setattr(sparse, "GATHER_AT_MOST", (size + 2) / ROWS * 20 / 12)  # size + 2 rows

    def names(count):
        indices = tf.range(count, dtype=tf.int64)
        mine = tf.IndexedSlices(tf.ones([count, WIDTH]), indices, tf.constant([ROWS, WIDTH], tf.int64))
        core().trace_start()
        result = reduced(lambda function: tf.function(function)(), mine, op=hvd.Sum)
        seen = {event["name"].split(".")[-1] for event in core().trace_stop()}
        expected = np.zeros((ROWS, WIDTH))
        for theirs in hvd.allgather_object(count):
            expected[:theirs] += 1.0
        check(result, expected)
        return seen

    assert {"values", "indices"} <= names(3 if rank == 0 else 1)
    seen = names(4 if rank == 0 else 1)
    assert "table" in seen
    assert "values" not in seen


def test_sparse_as_dense(hvd, rank, size, run):
    result = reduced(run, slices_of_rank(rank), sparse_as_dense=True)
    assert isinstance(result, tf.Tensor)
    np.testing.assert_allclose(result, sum_of([slices_of_rank(r) for r in range(size)]) / size, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", *in_full("sgd_momentum", "rmsprop", "adamw_clipnorm", "adagrad")])
def test_training_matches_one_process_on_the_whole_batch(hvd, rank, size, mpi, way, name, monkeypatch):
    """One process that adds repeated rows up, as a dense gradient does; 11 words, so that ranks share most of them."""
    if size == 3 and name != "adam":
        pytest.skip("three ranks prove nothing new about this optimizer")
    monkeypatch.setitem(OPTIMIZERS, "adagrad", lambda: keras.optimizers.Adagrad(0.1))
    x, y = word_data(size)
    optimizer = hvk.DistributedOptimizer(OPTIMIZERS[name]())
    model = embedding_model()
    weights = train_in_loop(model, optimizer, part_of(x, rank, size), part_of(y, rank, size), ROWS_PER_RANK)
    assert distance(weights, one_process(name, size, words=True, densify=True)) < 1e-6
    assert len({theirs.tobytes() for theirs in mpi.allgather(weights)}) == 1


def test_compiled_by_xla_it_is_dense(hvd, rank, size):
    """The number of rows is not known to XLA, the table is."""
    reducer = GradientReducer("compiled", ReduceOptions(op=hvd.Sum))
    table = tf.Variable(tf.zeros([ROWS, WIDTH]))
    result = tf.function(lambda: reducer([slices_of_rank(rank)], [table])[0], jit_compile=True)()
    assert isinstance(result, tf.Tensor)
    np.testing.assert_allclose(result, sum_of([slices_of_rank(r) for r in range(size)]))

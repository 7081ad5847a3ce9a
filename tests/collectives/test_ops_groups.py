"""`allreduce` of slices and of several tensors at once, eager and in a `tf.function`."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.support.contributions import SHAPES, contribution, everybody

pytestmark = pytest.mark.ranks("1", "2", "2+2", "2+1")


def my_slices(rank: int) -> tf.IndexedSlices:
    """`rank` + 1 rows of 2 for a table of 10 rows."""
    values = tf.fill([rank + 1, 2], float(rank + 1))
    return tf.IndexedSlices(values, tf.range(rank + 1, dtype=tf.int64), dense_shape=tf.constant([10, 2], tf.int64))


def all_slices(size: int) -> np.ndarray:
    table = np.zeros((10, 2), np.float32)
    for rank in range(size):
        table[: rank + 1] += rank + 1
    return table


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_allreduce_slices(hvd, rank, size, run, op):
    result = run(lambda: hvd.allreduce(my_slices(rank), op=getattr(hvd, op)))
    assert isinstance(result, tf.IndexedSlices)
    assert result.values.shape == (size * (size + 1) // 2, 2)
    expected = all_slices(size) / (size if op == "Average" else 1)
    np.testing.assert_allclose(tf.convert_to_tensor(result), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("grouped", [False, True])
def test_average_of_slices_is_that_of_the_table(hvd, rank, size, run, dtype, grouped):
    """Integers are divided once, after the rows of an index are added up: 7 and 7 of two ranks are 7."""
    random = np.random.default_rng(rank)
    values, indices = random.integers(0, 8, (5 + rank, 2)), random.integers(0, 4, 5 + rank)
    values = values if dtype.startswith("u") else values - 5  # rounded toward zero
    slices = tf.IndexedSlices(tf.constant(values, dtype), tf.constant(indices), tf.constant([4, 2], tf.int64))
    reduce = (lambda each: hvd.grouped_allreduce([each])[0]) if grouped else hvd.allreduce
    result = run(lambda: tf.convert_to_tensor(reduce(slices)))
    expected = hvd.allreduce(tf.convert_to_tensor(slices))
    assert result.dtype == tf.as_dtype(dtype)
    tolerance = {"float16": 0.01, "bfloat16": 0.1}.get(dtype, 1e-9)  # here each row is divided
    np.testing.assert_allclose(tf.cast(result, tf.float64), tf.cast(expected, tf.float64), atol=tolerance)


@pytest.mark.parametrize(
    "arguments", [{"op": 4}, {"op": 2}, {"prescale_factor": 2.0}, {"postscale_factor": 0.5}], ids=str
)
def test_what_slices_have_not(hvd, rank, arguments):
    for reduce in (hvd.allreduce, lambda slices, **more: hvd.grouped_allreduce([tf.ones([2]), slices], **more)):
        with pytest.raises(NotImplementedError, match="IndexedSlices"):
            reduce(my_slices(rank), **arguments)


def test_grouped_allreduce(hvd, rank, size, run):
    """Slices between tensors, two of them, of different tables."""
    tensors = [contribution(rank, shape) for shape in SHAPES]
    other = tf.IndexedSlices(tf.ones([2, 1], tf.float64), tf.constant([1, 1]), tf.constant([3, 1]))
    results = run(lambda: hvd.grouped_allreduce([*tensors[:3], my_slices(rank), *tensors[3:], other], op=hvd.Sum))
    np.testing.assert_allclose(tf.convert_to_tensor(results.pop()), [[0.0], [2.0 * size], [0.0]])
    np.testing.assert_allclose(tf.convert_to_tensor(results.pop(3)), all_slices(size))
    for shape, result in zip(SHAPES, results):
        np.testing.assert_array_equal(result, everybody(size, shape).sum(axis=0))


def test_grouped_allreduce_of_several_dtypes(hvd, rank, size, run):
    dtypes = ("float32", "int32", "float16", "float32")
    results = run(lambda: hvd.grouped_allreduce([contribution(rank, dtype=dtype) for dtype in dtypes], op=hvd.Sum))
    for dtype, result in zip(dtypes, results):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, everybody(size).sum(axis=0).astype(dtype))


def test_grouped_allreduce_of_nothing(hvd):
    assert hvd.grouped_allreduce([]) == []

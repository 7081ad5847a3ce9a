"""SmddpAllreduce and SmddpReducescatter as a graph calls them: buffers, attributes, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import loader
from smddp_tf.collectives.emit import _attributes_of as reduction
from smddp_tf.collectives.reduce_op import ReduceSpec, Sum

pytestmark = pytest.mark.ranks("2", "2+1")


def values(rank: int, rows: int, width: int = 3) -> np.ndarray:
    return (np.arange(rows * width).reshape(rows, width) * 3 + 100 * rank + 1).astype(np.float32)


def allreduce(tensors, name, **attributes):
    return loader.op_library().smddp_allreduce(tensors=tensors, tensor_name=name, **attributes)


def reducescatter(tensors, name, **attributes):
    return loader.op_library().smddp_reducescatter(tensors=tensors, tensor_name=name, **attributes)


def test_a_list_of_dtypes_and_shapes(hvd, rank, size, run):
    """One of the tensors is empty, one a scalar."""
    arrays = [[values(of, 400), np.int64(of - 5), np.zeros([0, 2], np.float16)] for of in range(size)]
    results = run(lambda: allreduce([tf.constant(one) for one in arrays[rank]], "list", **reduction(ReduceSpec(Sum))))
    for index, result in enumerate(results):
        expected = sum(arrays[of][index] for of in range(size))
        np.testing.assert_array_equal(result, expected)
        assert (result.shape, result.dtype) == (expected.shape, tf.as_dtype(arrays[0][index].dtype))


def test_scales_are_float64(hvd, rank, size):
    """A third, which no float32 holds."""
    spec = ReduceSpec(Sum, prescale=1 / 3, postscale=3.0)
    (result,) = allreduce([tf.constant([rank + 1.0], tf.float64)], "scaled", **reduction(spec))
    assert abs(float(result[0]) - sum(range(1, size + 1))) < 1e-14


@pytest.mark.parametrize("attributes", [{"reduce_op": 17}, {"reduce_op": -1}])
def test_a_number_of_no_reduction_is_refused(hvd, attributes):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"Average 0.*Received: {attributes['reduce_op']}"):
        allreduce([tf.zeros(2)], "refused", **{**reduction(ReduceSpec(Sum)), **attributes})


def test_each_rank_gets_its_rows(hvd, rank, size):
    """7 rows: the first ranks have one more."""
    counts = [7 // size + (other < 7 % size) for other in range(size)]
    begin = sum(counts[:rank])
    arrays = [(-1) ** other * values(other, 7, 90) for other in range(size)]
    (result,) = reducescatter([tf.constant(arrays[rank])], "rows", **reduction(ReduceSpec(Sum, 2.0)))
    np.testing.assert_array_equal(result, 2 * sum(arrays)[begin : begin + counts[rank]])


def test_rows_of_a_scalar_are_an_error_on_all(hvd, rank):
    graph = tf.function(
        lambda x: reducescatter([x], "scalar", **reduction(ReduceSpec(Sum))),
        input_signature=[tf.TensorSpec(None, tf.float32)],  # its rank is known when it runs
    )
    with pytest.raises(tf.errors.OpError, match="(?i)scalar|dimension"):
        graph(tf.constant(1.0 + rank))
    (result,) = allreduce([tf.constant([1.0])], "goes on", **reduction(ReduceSpec(Sum)))
    assert float(result[0]) == hvd.size()


def test_a_reducescatter_leaves_its_input_alone(hvd, rank, size):
    array = values(rank, 2 * size, 700)
    x = tf.constant(array)
    tf.function(lambda: reducescatter([x + 0.0], "alone", **reduction(ReduceSpec(Sum))))()
    np.testing.assert_array_equal(x, array)

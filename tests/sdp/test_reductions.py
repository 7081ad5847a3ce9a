"""The collectives of smddp_tf.sdp: gradients one by one, other values, broadcasts."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf import sdp
from smddp_tf._native import loader

pytestmark = pytest.mark.ranks("1", "2")


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_gradients_one_by_one(hvd, rank, size, mode):
    """Every second place has no gradient; places are matched, whatever the order in which they come."""
    count = 6
    grads = {i: tf.constant([[i + 1.0, rank * 10.0]] * (i + 1)) for i in range(0, count, 2)}

    def reduce_all(order, **options):
        return {i: sdp.allreduce(grads.get(i), param_index=i, num_params=count, **options) for i in order}

    run = tf.function if mode == "graph" else (lambda function: function)
    order = range(count) if rank == 0 or mode == "eager" else reversed(range(count))
    reduced = run(lambda: reduce_all(order))()
    assert [i for i, grad in reduced.items() if grad is None] == ([1, 3, 5] if order == range(count) else [5, 3, 1])
    for i in grads:
        np.testing.assert_allclose(reduced[i], [[i + 1.0, 5.0 * (size - 1)]] * (i + 1))

    for op, expected in (("SUM", 5.0 * size * (size - 1)), ("MIN", 0.0), ("MAX", 10.0 * (size - 1))):
        result = run(
            lambda op=op: sdp.allreduce(grad=grads[0], param_index=0, num_params=1, op=getattr(sdp.ReduceOp, op))
        )()
        np.testing.assert_allclose(result, [[size if op == "SUM" else 1.0, expected]])
    half = run(lambda: sdp.allreduce(grads[2] + 2.0**-13, 0, 1, sdp.Compression.fp16))()
    assert half.dtype == tf.float32
    if size > 1 or mode == "eager":  # a plan of one rank narrows nothing
        np.testing.assert_allclose(half[0, 0], 3.0)


def test_gradients_of_a_graph_are_not_negotiated_in_each_step(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank has nobody to negotiate with")

    @tf.function
    def step(x):
        return [sdp.allreduce(x * (i + 1.0), i, 3) for i in range(3)]

    step(tf.ones([4]))
    before = loader.core().stats()
    for _ in range(5):
        grads = step(tf.fill([4], float(rank)))
    after = loader.core().stats()
    assert after["named_requests"] == before["named_requests"]
    assert after["planned_buckets"] - before["planned_buckets"] == 5
    np.testing.assert_allclose(grads, [[(size - 1) / 2 * (i + 1)] * 4 for i in range(3)])


def test_wrong_places_are_refused(hvd):
    for index, count in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="`param_index` counts"):
            sdp.allreduce(tf.ones([1]), index, count)
    with pytest.raises(ValueError, match="two names"):
        sdp.allreduce(tf.ones([1]), 0, 1, grad=tf.ones([1]))


def test_slices(hvd, rank, size):
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([rank]), tf.constant([size, 2]))
    np.testing.assert_allclose(tf.convert_to_tensor(sdp.allreduce(slices, 0, 1)), np.full([size, 2], 1 / size))


def test_values_that_are_no_gradients(hvd, rank, size):
    mean = (size - 1) / 2
    np.testing.assert_allclose(sdp.oob_allreduce(tf.constant(float(rank))), mean)
    assert int(sdp.oob_allreduce(2 * rank)) == size - 1
    assert sdp.oob_allreduce(tf.constant([2 * rank], tf.int32)).dtype == tf.int32
    loss, accuracy = list(sdp.oob_allreduce([float(rank), 2.0 * rank]))
    assert (float(loss), float(accuracy)) == (mean, 2 * mean)
    np.testing.assert_allclose(sdp.oob_allreduce(np.array([rank, 1.0])), [mean, 1.0])
    mixed = sdp.oob_allreduce([tf.constant(float(rank)), tf.fill([2], 2 * rank)])
    assert [tensor.dtype for tensor in mixed] == [tf.float32, tf.int32]
    np.testing.assert_allclose(mixed[1], [size - 1] * 2)
    np.testing.assert_allclose(tf.function(lambda: sdp.oob_allreduce(tf.constant(float(rank))))(), mean)
    np.testing.assert_allclose(sdp.oob_allreduce(tf.constant(float(rank)), op=sdp.ReduceOp.MAX), size - 1)


def test_broadcasts(hvd, rank, size):
    root = size - 1
    np.testing.assert_allclose(sdp.broadcast(tf.constant([rank]), root), [root])
    variables = [tf.Variable(float(rank)), tf.Variable([rank, 1])]
    tf.function(lambda: sdp.broadcast_variables(variables, root_rank=root))()
    np.testing.assert_allclose(variables[0], root)
    np.testing.assert_allclose(variables[1], [root, 1])
    with pytest.raises(RuntimeError, match="does not support eager execution"):
        sdp.broadcast_global_variables(0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("x", initializer=float(rank), use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(sdp.broadcast_global_variables(root))
        assert session.run(variable) == root


def test_overlap_changes_nothing(hvd, rank):
    np.testing.assert_array_equal(tf.function(sdp.overlap)(tf.constant([rank, 2])), [rank, 2])

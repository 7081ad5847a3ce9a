"""Collectives in a graph: they always run, run side by side, and their names match on all ranks."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")


def smddp_ops(concrete) -> list[tf.Operation]:
    return [op for op in concrete.graph.get_operations() if op.type.startswith("Smddp")]


def test_ops_are_neither_folded_pruned_nor_merged(hvd):
    """Constant inputs, equal ops, unused outputs: each still runs once in every call."""
    from smddp_tf._native import loader

    @tf.function
    def function():
        for _ in range(3):
            hvd.allreduce(tf.constant(1.0))
        return tf.constant(1.0)

    function()
    before = loader.core().stats()["named_requests"]
    for _ in range(4):
        function()
    assert loader.core().stats()["named_requests"] - before == 12


def test_ops_are_not_chained(hvd):
    """Stateful ops would run one after the other, in the order of tracing."""

    @tf.function
    def function(x):
        return hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, 0), hvd.allreduce(x + 1.0)

    ops = smddp_ops(function.get_concrete_function(tf.ones([3])))
    assert len(ops) == 4
    assert all(not op.control_inputs for op in ops)


def test_names_in_a_graph(hvd):
    @tf.function
    def my_step(x):
        hvd.allreduce(x)
        hvd.allreduce(x)
        hvd.allreduce(x, name="loss")
        hvd.allreduce(x, name="loss")

    names = [op.get_attr("tensor_name").decode() for op in smddp_ops(my_step.get_concrete_function(tf.ones([])))]
    assert names == ["my_step/allreduce", "my_step/allreduce_2", "loss", "loss_2"]


def test_names_do_not_tell_how_many_functions_a_rank_traced(hvd, rank, size):
    """TensorFlow numbers its graphs; rank 0 often traces more of them than the others."""
    for _ in range(rank):
        tf.function(lambda x: tf.while_loop(lambda i: i < 2, lambda i: [i + 1], [x]))(tf.constant(0))

    @tf.function
    def total(n):
        result = tf.constant(0.0)
        for _ in tf.range(n):
            if result >= 0.0:
                result += hvd.allreduce(tf.constant(1.0), op=hvd.Sum)
        return result

    assert total(tf.constant(3)) == 3.0 * size


def test_iterations_of_a_loop_stay_in_order(hvd, rank, size):
    """The values do not depend on earlier iterations, which TensorFlow may therefore run side by side."""

    @tf.function
    def function(n):
        results = tf.TensorArray(tf.float32, n)
        for i in tf.range(n):
            results = results.write(i, hvd.allreduce(tf.cast(i * (rank + 1), tf.float32), op=hvd.Sum))
        return results.stack()

    np.testing.assert_array_equal(function(tf.constant(50)), np.arange(50) * (size * (size + 1) / 2))


def test_ranks_may_be_ready_in_different_order(hvd, rank, size):
    """Each rank delays another one of its reductions."""

    @tf.function
    def function(x):
        slow = x
        for _ in tf.range(2000):
            slow = slow * 1.0
        inputs = [slow if k % size == rank else x for k in range(8)]
        return [hvd.allreduce(tensor * float(k), op=hvd.Sum) for k, tensor in enumerate(inputs)]

    for _ in range(5):
        np.testing.assert_array_equal(function(tf.constant(1.0)), np.arange(8) * float(size))

"""Gradients that `sdp.allreduce` gets one by one in a graph share buckets, whatever the order of the calls."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf import sdp
from smddp_tf._native import loader
from smddp_tf.sdp import common

pytestmark = pytest.mark.ranks("2")

SHAPES = {0: (3,), 1: (64, 5), 3: (), 4: (2, 3, 4), 6: (17,)}  # places 2 and 5 have no gradient
COUNT = 7


def value(rank, index, step=0):
    """Differs by rank, place and position; a quarter, so that means of 2 ranks are exact."""
    shape = SHAPES[index]
    count = int(np.prod(shape, dtype=int))
    numbers = (np.arange(count).reshape(shape) + 100 * index + 7 * rank * (index + 1) + step) / 4
    return np.asarray(numbers, np.float32)


def mean(size, index, step=0):
    return np.mean([value(rank, index, step) for rank in range(size)], axis=0)


def order_of(rank):
    """Another one on each rank."""
    return [*SHAPES] if rank == 0 else [4, 6, 0, 3, 1]


@contextlib.contextmanager
def counted(name):
    """What a counter of the engine has grown by, in the list that this gives."""
    grown, before = [], loader.core().stats()[name]
    yield grown
    grown.append(loader.core().stats()[name] - before)


def test_a_list_is_one_bucket_in_any_order_on_each_rank(hvd, rank, size):
    @tf.function
    def step(*values):
        given = dict(zip(SHAPES, values))
        return {index: sdp.allreduce(given[index], index, COUNT) for index in order_of(rank)}

    for turn in range(3):
        with counted("planned_buckets") as buckets, counted("named_requests") as named:
            reduced = step(*(tf.constant(value(rank, index, turn)) for index in SHAPES))
            for index in SHAPES:
                np.testing.assert_array_equal(reduced[index], mean(size, index, turn))
        assert buckets == [1]
        assert named == [0] or turn == 0  # the plan itself is matched by name, once


def test_dtypes_sums_and_narrowed_gradients_have_buckets_of_their_own(hvd, rank, size):
    @tf.function
    def step():
        given = {index: tf.constant(value(rank, index)) for index in SHAPES}
        means = {index: sdp.allreduce(tf.cast(given[index], tf.float64 if index > 3 else tf.float32), index, COUNT)
                 for index in order_of(rank)}  # fmt: skip
        sums = {index: sdp.allreduce(given[index], index, COUNT, op=sdp.ReduceOp.SUM) for index in order_of(rank)}
        narrow = {index: sdp.allreduce(given[index], index, COUNT, sdp.Compression.fp16) for index in order_of(rank)}
        return means, sums, narrow

    step()
    with counted("planned_buckets") as buckets:
        means, sums, narrow = step()
    assert buckets == [2 + 1 + 1]
    for index in SHAPES:
        np.testing.assert_array_equal(means[index], mean(size, index))
        np.testing.assert_array_equal(sums[index], mean(size, index) * size)
        np.testing.assert_allclose(narrow[index], mean(size, index), rtol=1e-3)
        assert (means[index].dtype == tf.float64) == (index > 3)


def test_two_steps_in_one_graph_are_two_lists(hvd, rank, size):
    @tf.function
    def steps():
        return [{index: sdp.allreduce(tf.constant(value(rank, index, step)), index, COUNT) for index in order_of(rank)}
                for step in range(2)]  # fmt: skip

    steps()
    with counted("planned_buckets") as buckets:
        found = steps()
    assert buckets == [2]
    for step in range(2):
        for index in SHAPES:
            np.testing.assert_array_equal(found[step][index], mean(size, index, step))


@pytest.mark.parametrize("through", ["value", "variable", "control"])
def test_a_gradient_that_depends_on_a_result_waits_for_no_bucket_with_it(hvd, rank, size, through):
    held = tf.Variable(0.0)

    @tf.function
    def step(x):
        first = [sdp.allreduce(x * (i + 1.0), i, 4) for i in range(2)]
        if through == "variable":
            held.assign(first[0])
        with tf.control_dependencies([first[0]] if through == "control" else []):
            again = tf.identity({"value": first[0], "variable": held}.get(through, x))
        return [*first, *(sdp.allreduce(again * (i + 1.0), i, 4) for i in range(2, 4))]

    step(tf.constant(0.0))
    with counted("planned_buckets") as buckets:
        found = step(tf.constant(float(rank)))
    assert buckets == [2]
    np.testing.assert_allclose(found, [(size - 1) / 2 * (i + 1) for i in range(4)])


def test_results_used_one_by_one_go_by_name_at_the_end_of_a_long_list(hvd, rank, size):
    """A session has numbers for so many plans only."""
    places = (0, 1, 511, 512, 513)

    @tf.function
    def step(x):
        return [sdp.allreduce(x * (i + 1.0), i, 514) + 1.0 for i in places]

    step(tf.ones([4]))
    with counted("planned_buckets") as buckets, counted("named_requests") as named:
        found = step(tf.fill([4], float(rank)))
    assert (buckets, named) == ([3], [2])
    np.testing.assert_allclose(found, [[(size - 1) / 2 * (i + 1) + 1] * 4 for i in places])


def test_a_branch_and_a_nested_function_have_lists_of_their_own(hvd, rank, size):
    @tf.function
    def inner(x):
        return sdp.allreduce(x, 0, 3)

    @tf.function
    def step(x, more):
        first = sdp.allreduce(2.0 * x, 1, 3)
        return inner(x), first, tf.cond(more, lambda: sdp.allreduce(3.0 * x, 2, 3), lambda: x)

    middle = (size - 1) / 2
    for more in (True, False):
        found = step(tf.fill([3], float(rank)), tf.constant(more))
        np.testing.assert_allclose(found, [[middle] * 3, [2 * middle] * 3, [3 * middle if more else rank] * 3])


def test_ranks_whose_lists_differ_are_told(hvd, rank, size):
    @tf.function
    def step(x):
        return [sdp.allreduce(x, index, 3) for index in ((0, 1, 2) if rank == 0 else (0, 2))]

    with pytest.raises(tf.errors.OpError, match=r"sdp\.allreduce\.0/3"):
        step(tf.ones([2]))


def test_the_bucket_size_that_was_set_acts(hvd, rank, size):
    def buckets_with(bucket_bytes):
        hvd.shutdown()
        try:
            common.setBucketSize(bucket_bytes)
            sdp.init()
        finally:
            os.environ.pop("SMDDP_BUCKET_BYTES", None)

        @tf.function
        def step(x):
            return [sdp.allreduce(x * (index + 1.0), index, 8) for index in range(8)]

        step(tf.ones([1024]))
        with counted("planned_buckets") as buckets:
            found = step(tf.fill([1024], float(rank)))
        np.testing.assert_allclose(found, [[(size - 1) / 2 * (i + 1)] * 1024 for i in range(8)])
        return buckets[0]

    assert (buckets_with(2 * 4096), buckets_with(4 * 4096)) == (4, 2)
    hvd.shutdown()
    hvd.init()

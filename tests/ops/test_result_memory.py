"""Large results that cannot take their input's place: their memory is reused, and never while somebody holds it."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import shared_tensors

pytestmark = pytest.mark.ranks("2")

MIB = 1 << 20
PAGE = resource.getpagesize()
# With shared tensors TensorFlow's allocator keeps the memory of results (tests/ops/allocator/test_shared_arena.cc).
of_the_ops = pytest.mark.skipif(shared_tensors.memory()[1] > 0, reason="tensors are shared: the ops keep no memory")


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE


@pytest.fixture
def total(hvd):
    """A compiled function whose input has other readers, so that its result needs memory of its own."""
    return tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))


def test_a_result_that_is_held_is_not_overwritten(rank, size, total):
    inputs = [tf.fill([2 * MIB + 5], float(10 * k + rank)) for k in range(4)]
    results = [total(x) for x in inputs for _ in range(2)]
    for k, result in enumerate(results):
        np.testing.assert_array_equal(result, np.full(2 * MIB + 5, 10.0 * (k // 2) * size + sum(range(size))))
    for k, x in enumerate(inputs):
        np.testing.assert_array_equal(x, np.full(2 * MIB + 5, 10.0 * k + rank))


@of_the_ops
def test_what_is_kept_is_bounded(rank, total):
    """Many results of many sizes at once, then none: nearly all of it goes back to the system."""
    results = [total(tf.fill([(8 + k) * MIB], float(rank))) for k in range(8)]  # 368 MiB
    before = resident_bytes()
    del results
    assert before - resident_bytes() > 200 * MIB


@of_the_ops
def test_what_is_needed_again_and_again_is_kept(rank, size, total):
    if size != 2:
        pytest.skip("one number of ranks is enough for memory of each rank")
    inputs = [tf.fill([(38 + k) * MIB], float(rank + k)) for k in range(2)]  # 308 MiB

    def given_back() -> int:
        results = [total(x) for x in inputs]
        assert [float(result[-1]) for result in results] == [1.0, 3.0]
        before = resident_bytes()
        del results
        return before - resident_bytes()

    assert given_back() > 290 * MIB
    assert [given_back() for _ in range(6)][-1] < 20 * MIB

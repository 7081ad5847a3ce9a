"""Large results that cannot take their input's place: their memory is not used again while somebody holds it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")

MIB = 1 << 20


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

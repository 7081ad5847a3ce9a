"""What ranks must agree on about their data: the same data, the same order, on every rank."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2")


def test_the_global_seed_is_put_back(hvd):
    tf.random.set_seed(5)
    expected = tf.random.uniform([3]).numpy()
    tf.random.set_seed(5)
    hvd.data.shard(tf.data.Dataset.range(4), shuffle=True)
    np.testing.assert_array_equal(tf.random.uniform([3]).numpy(), expected)


# --- agreement ---


def test_different_data_is_an_error_everywhere(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(ValueError, match=rf"items=5 on rank 0 and items=6 on rank {size - 1} \(this is rank {rank}\)"):
        hvd.data.shard(np.arange(5 + (rank == size - 1)))
    with pytest.raises(ValueError, match="even='pad' on rank 0 and even=None on rank 1"):
        hvd.data.shard(tf.data.Dataset.range(5), even=None if rank == 1 else "pad")

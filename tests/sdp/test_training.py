"""The tape of smddp_tf.sdp."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf import sdp

pytestmark = pytest.mark.ranks("1", "2")


def test_tape(hvd, rank, size):
    """Averages, turns slices into dense gradients unless told otherwise, and takes what SMDDP's documents refuse."""
    table, weight = tf.Variable(tf.ones([3, 2])), tf.Variable([2.0])

    def gradients(**options):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [0, 0])) * (rank + 1.0) + tf.reduce_sum(weight) * rank
        return sdp.DistributedGradientTape(tape, **options).gradient(loss, [table, weight, tf.Variable(1.0)])

    of_table, of_weight, nothing = gradients()
    assert isinstance(of_table, tf.Tensor)
    assert nothing is None
    np.testing.assert_allclose(of_table, [[size + 1.0] * 2, [0, 0], [0, 0]])
    np.testing.assert_allclose(of_weight, [(size - 1) / 2])
    assert isinstance(gradients(sparse_as_dense=False)[0], tf.IndexedSlices)
    with pytest.warns(UserWarning, match="ignored here. Received: device_dense='/gpu:0'"):
        gradients(device_dense="/gpu:0", device_sparse="")
    with pytest.raises(ValueError, match="`op`.*hvd.Average"):
        gradients(op=sdp.ReduceOp.SUM)

"""The optimizer of smddp_tf.sdp, for `apply_gradients`."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from smddp_tf import sdp

pytestmark = pytest.mark.ranks("1", "2")


def test_apply_gradients(hvd, rank, size):
    with pytest.warns(UserWarning, match="keeps its bucket size"):
        optimizer = sdp.DistributedOptimizer(
            keras.optimizers.SGD(0.5), name=None, device_dense="", device_sparse="", bucket_cap_mb=64
        )
    variable = tf.Variable([1.0, 2.0])
    optimizer.apply_gradients([(tf.constant([2.0 * rank, 1.0]), variable)])
    np.testing.assert_allclose(variable, [1.0 - 0.5 * (size - 1), 1.5])

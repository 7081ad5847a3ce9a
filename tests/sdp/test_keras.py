"""smddp_tf.sdp.keras: the optimizer, the callbacks and the ranks, as scripts that call `fit` have them."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from smddp_tf.sdp import keras as sdp_keras

pytestmark = pytest.mark.ranks("1", "2")


def test_ranks(hvd, rank, size):
    assert (sdp_keras.rank(), sdp_keras.size()) == (rank, size)
    assert (sdp_keras.local_rank(), sdp_keras.local_size()) == (hvd.local_rank(), hvd.local_size())


def test_fit(hvd, rank, size):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(
        sdp_keras.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=sdp_keras.Compression.none),
        loss=lambda y, prediction: y * prediction,
        experimental_run_tf_function=False,
        run_eagerly=True,
    )
    callbacks = [sdp_keras.callbacks.BroadcastGlobalVariablesCallback(0), sdp_keras.callbacks.MetricAverageCallback()]
    history = model.fit(np.ones([1, 1]), np.array([[2.0 * rank]]), verbose=0, callbacks=callbacks)
    np.testing.assert_allclose(model.get_weights()[0], [[1 - 0.1 * (size - 1)]], rtol=1e-6)
    np.testing.assert_allclose(history.history["loss"], [size - 1], rtol=1e-6)

"""States of layers that no gradient trains: scales of float8, statistics and seeds."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from tests.support.keras_training import (
    FEATURES,
)

pytestmark = pytest.mark.ranks("2")


def test_float8_layers(hvd, rank, size, mpi):
    """The scales are of this rank's numbers and stay so; the weights are everybody's."""
    keras.utils.set_random_seed(11)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16)])
    try:
        model.quantize("float8")
    except (AttributeError, ValueError) as error:
        pytest.skip(f"Keras {keras.__version__} has no float8 layers: {error}")
    layer = model.layers[-1]
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    x = np.random.default_rng(rank).normal(size=(8, 16)).astype(np.float32) * (rank + 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The ranks do not train the same model")
        model.fit(x, x, batch_size=4, epochs=2, verbose=0)
    local = {id(v) for v in layer.trainable_variables if getattr(v, "overwrite_with_gradient", False)}
    assert local
    kernels = mpi.allgather(layer.kernel.numpy())
    assert all(np.array_equal(kernels[0], theirs) for theirs in kernels)
    histories = mpi.allgather(layer.inputs_amax_history.numpy())
    assert np.abs(histories[0]).max() > 0
    assert size == 1 or not np.array_equal(histories[0], histories[1])


def test_states_of_layers_are_those_of_rank_0(hvd, rank, size, mpi):
    """Statistics of BatchNormalization and seeds of dropout: not trainable, but part of the model."""
    keras.utils.set_random_seed(rank)
    model = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    )
    model.layers[0].moving_mean.assign(np.full(FEATURES, rank + 3.0))
    hvd.broadcast_variables(model.variables, root_rank=0)
    seeds = [v for v in model.variables if "seed" in v.path]
    assert len(seeds) == 1
    np.testing.assert_array_equal(model.layers[0].moving_mean, np.full(FEATURES, 3.0))
    states = [variable.numpy() for variable in model.variables]
    assert all(all(map(np.array_equal, states, theirs)) for theirs in mpi.allgather(states))

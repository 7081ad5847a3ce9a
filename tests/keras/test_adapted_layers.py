"""Preprocessing layers that each rank has adapted to its own part of the data: all ranks go on with those of rank 0."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.distributed_keras import distributed

pytestmark = pytest.mark.ranks("2")

WORDS = np.array(["a", "b", "c", "d", "e", "f"])


def adapted_model(rank: int) -> keras.Model:
    """Rank r has seen other words, in another order, and other numbers; part of the layers is in a model inside."""
    keras.utils.set_random_seed(3)
    lookup = keras.layers.StringLookup()
    lookup.adapt(np.roll(WORDS, rank)[: 5 if rank else 4].repeat(np.arange(5 if rank else 4) + 1))
    weighted = keras.layers.StringLookup(output_mode="tf_idf", max_tokens=8, pad_to_max_tokens=True)
    weighted.adapt(np.roll(WORDS, 2 * rank)[:3])
    text = keras.layers.TextVectorization(output_sequence_length=1)
    text.adapt(np.roll(WORDS, 3 * rank)[: 5 - min(rank, 2)])
    numbers = np.random.default_rng(rank).normal(rank, rank + 1.0, (20, 1)).astype("float32")
    scaled, binned = keras.layers.Normalization(), keras.layers.Discretization(num_bins=3, output_mode="int")
    scaled.adapt(numbers)
    binned.adapt(numbers)
    word, number = keras.Input((1,), dtype="string"), keras.Input((1,))
    inside = keras.Model(word, keras.layers.Reshape((2,))(keras.layers.Embedding(9, 2)(lookup(word))))
    columns = [
        inside(word),
        weighted(word),
        keras.layers.Reshape((2,))(keras.layers.Embedding(9, 2)(text(word))),
        scaled(number),
        keras.layers.Reshape((2,))(keras.layers.Embedding(4, 2)(binned(number))),
    ]
    model = keras.Model([word, number], keras.layers.Dense(1)(keras.layers.Concatenate()(columns)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


@pytest.mark.parametrize("way", ["hvd", "keras.distribution"])
def test_all_ranks_have_the_layers_of_rank_0(hvd, rank, mpi, way):
    x = [tf.constant(WORDS[:, None]), tf.constant(np.linspace(-1, 2, len(WORDS), dtype="float32")[:, None])]
    data = tf.data.Dataset.from_tensors((tuple(x), tf.ones((len(WORDS), 1))))
    model = adapted_model(rank)
    expected = mpi.bcast(model.predict(x, verbose=0))  # traces it, too
    called = expected
    if keras.__version__.startswith("3.3."):  # whose Discretization differs outside of `predict`
        called = mpi.bcast(np.asarray(model(x)))
    model.optimizer.learning_rate = 0.0
    if way == "hvd":
        model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse")
        model.fit(data, verbose=0, callbacks=[hvk.callbacks.BroadcastGlobalVariablesCallback(0)])
    else:
        with distributed():
            model.fit(data, verbose=0)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-5)
    np.testing.assert_allclose(model(x), called, rtol=1e-5)


def test_normalization_alone(hvd, rank, mpi):
    """Its variables are broadcast; what was traced before holds what it had made of them."""
    scaled = keras.layers.Normalization()
    scaled.adapt(np.arange(6.0).reshape(6, 1) * (rank + 1))
    model = keras.Sequential([keras.Input((1,)), scaled])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse")
    x = np.ones((4, 1))
    expected = mpi.bcast(model.predict(x, verbose=0))
    model.fit(x, x, verbose=0, callbacks=[hvk.callbacks.BroadcastGlobalVariablesCallback(0)])
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-6)


def test_a_state_that_a_layer_cannot_take_is_an_error_of_all_ranks(hvd, rank, size):
    lookup = keras.layers.IntegerLookup(max_tokens=4 if rank else 8)
    lookup.adapt(np.arange(2 if rank else 6))
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Reshape((2,))(keras.layers.Embedding(9, 2)(lookup(inputs))))
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse")
    fit = {"x": np.zeros((2, 1), "int64"), "y": np.zeros((2, 2)), "verbose": 0}
    broadcast = [hvk.callbacks.BroadcastGlobalVariablesCallback(0)]
    if size == 1:
        model.fit(**fit, callbacks=broadcast)
        return
    with pytest.raises(ValueError, match=r"cannot take the state that it has on rank 0\. .*integer_lookup.*on rank 1"):
        model.fit(**fit, callbacks=broadcast)

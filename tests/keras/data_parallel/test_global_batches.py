"""`keras.distribution.DataParallel`: the batches of datasets, whole or brought by each rank, of any kind of tensor."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.distributed_keras import (
    BATCH,
    FEATURES,
    Batches,
    arguments,
    distributed,
    model,
    samples,
    weights,
)

pytestmark = pytest.mark.ranks("2")


def test_data_that_are_sharded_already(hvd, rank, size):
    """Ranks have parts of different lengths, which they bring themselves; batches of the same step are one."""
    if "auto_shard_dataset" not in inspect.signature(keras.distribution.DataParallel).parameters:
        pytest.skip("in this Keras a DataParallel always shards")
    x, y = samples()
    per_rank = BATCH // 4
    parts = [slice(r * len(x) // (size + 1), (r + 1) * len(x) // (size + 1) - r) for r in range(size)]

    def step(number: int, of_rank: slice) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(number * per_rank, (number + 1) * per_rank)
        return x[of_rank][rows], y[of_rank][rows]

    alone = model("adamw")
    for number in range(-(-max(len(x[part]) for part in parts) // per_rank)):
        of_ranks = [step(number, part) for part in parts]
        alone.train_on_batch(*(np.concatenate(arrays) for arrays in zip(*of_ranks)))
    with distributed(auto_shard_dataset=False):
        together = model("adamw")
        mine = tf.data.Dataset.from_tensor_slices((x[parts[rank]], y[parts[rank]])).batch(per_rank)
        together.fit(mine, verbose=0)
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-6, atol=1e-6)


def test_sparse_and_ragged_inputs(hvd):
    x, y = samples()
    sparse = tf.sparse.from_dense(tf.where(x > 0.3, x, 0.0))
    ragged = tf.RaggedTensor.from_tensor(tf.where(x > 0, 1, 2), lengths=1 + np.arange(len(x)) % FEATURES)

    def trained(inputs: keras.Input, hidden: list, data: object) -> np.ndarray:
        keras.utils.set_random_seed(5)
        net = keras.Sequential([inputs, *hidden, keras.layers.Dense(1)])
        net.compile("sgd", "mse")
        net.fit(tf.data.Dataset.from_tensor_slices((data, y)).batch(BATCH), epochs=2, verbose=0)
        return weights(net)

    for inputs, hidden, data in [
        (lambda: keras.Input((FEATURES,), sparse=True), list, sparse),
        (lambda: keras.Input((None,), dtype="int32"), lambda: [keras.layers.CategoryEncoding(3, "count")], ragged),
    ]:
        data = data if data is sparse else ragged.to_tensor()
        expected = trained(inputs(), hidden(), data)
        with distributed():
            np.testing.assert_allclose(trained(inputs(), hidden(), data), expected, rtol=1e-5, atol=1e-6)


def test_the_length_of_a_dataset_stays_known(hvd):
    x, y = samples()
    seen = []
    note = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: seen.append(note.params["steps"]))
    with distributed():
        net = model("sgd")
        for data in (arguments("tf.data", x, y), {"x": Batches(x, y)}):
            net.fit(**data, verbose=0, callbacks=[note])
    assert seen == [5, 5]

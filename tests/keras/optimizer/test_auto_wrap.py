"""`keras.distribution.DataParallel`: which optimizers reduce, and until when."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.roles.wrapping import is_wrapped
from tests.support.distributed_keras import (
    BATCH,
    distributed,
    model,
    same_on_all,
    samples,
    weights,
)

pytestmark = pytest.mark.ranks("2")


def test_only_under_a_distribution(hvd, rank, mpi):
    """After `set_distribution(None)` a model trains alone, on what this rank gives it."""
    x, y = samples()
    with distributed():
        net = model("sgd")
        net.fit(x, y, batch_size=BATCH, verbose=0)
        assert is_wrapped(net.optimizer)
    net.fit(x[rank:], y[rank:], batch_size=BATCH, shuffle=False, verbose=0)
    assert not is_wrapped(net.optimizer)
    everybody = mpi.allgather(weights(net))
    assert len({each.tobytes() for each in everybody}) == len(everybody)


def test_steps_of_ones_own(hvd, rank, size, mpi):
    """`train_on_batch`, a loop with `optimizer.apply`, and a wrapped optimizer reduce once."""
    x, y = samples()
    share = slice(rank * 4, rank * 4 + 4)
    whole = slice(0, size * 4)
    alone = model(keras.optimizers.SGD(0.5))
    alone.train_on_batch(x[whole], y[whole])
    with distributed():
        by_batch, by_loop, wrapped = (model(keras.optimizers.SGD(0.5)) for _ in range(3))
        by_batch.train_on_batch(x[share], y[share])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.binary_crossentropy(y[share], by_loop(x[share])))
            loss += tf.add_n(by_loop.losses)
        by_loop.optimizer.apply(tape.gradient(loss, by_loop.trainable_weights), by_loop.trainable_weights)
        wrapped.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.5)), "binary_crossentropy")
        wrapped.train_on_batch(x[share], y[share])
    for each in (by_batch, by_loop, wrapped):
        np.testing.assert_allclose(weights(each), weights(alone), rtol=1e-6, atol=1e-6)
        assert same_on_all(mpi, weights(each))

"""The warning when all ranks train on the same batches."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.collectives import rank_facts
from smddp_tf.keras.optimizer import same_batches
from tests.support.keras_training import dense_data, dense_model, embedding_model, part_of, word_data

pytestmark = pytest.mark.ranks("2")

MESSAGE = "All ranks seem to train on the same batches"


@pytest.fixture(autouse=True)
def _anew(size):
    if size == 1:
        pytest.skip("one rank has nobody to repeat")
    same_batches._fingerprint.cache_clear()
    rank_facts.warn_once_on_rank_zero.cache_clear()


def warned(function) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return sum(MESSAGE in str(warning.message) for warning in caught) == 1


def fit(model, x, y, loss="mse", epochs: int = 2, **options) -> None:
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss=loss, **options)
    model.fit(x, y, batch_size=4, epochs=epochs, shuffle=False, verbose=0)


@pytest.mark.parametrize("words", [False, True], ids=["dense", "embedding"])
def test_warns_once_on_rank_zero(hvd, rank, size, words):
    """The message names what to do."""
    model, (x, y) = (embedding_model(), word_data(1, 3)) if words else (dense_model(), dense_data(1, 3))
    assert warned(lambda: fit(model, x, y)) == (rank == 0)
    assert not warned(lambda: model.fit(x, y, batch_size=4, shuffle=False, verbose=0))


def test_says_what_to_do(hvd, rank, size):
    same_batches.note([tf.constant([1.0, 2.0])])
    if rank > 0:
        same_batches.warn_if_same()
        return
    with pytest.warns(UserWarning, match=r"smddp_tf\.data\.shard"):
        same_batches.warn_if_same()


def test_compiled_by_xla(hvd, rank, size):
    assert warned(lambda: fit(dense_model(), *dense_data(1, 3), jit_compile=True)) == (rank == 0)


def test_parts_do_not_warn(hvd, rank, size):
    x, y = (part_of(array, rank, size) for array in dense_data(size, 3))
    assert not warned(lambda: fit(dense_model(), x, y))


def test_one_different_batch_of_one_rank_is_enough(hvd, rank, size):
    x, y = dense_data(1, 3)
    if rank == size - 1:
        x[5] += 0.5
    assert not warned(lambda: fit(dense_model(), x, y))


def linear_loss(y_true, y_pred):
    return tf.reduce_mean(y_pred)


def test_a_gradient_that_does_not_see_the_data(hvd, rank, size):
    """The bias of the last layer always gets the same; the first kernel does not."""
    x, y = (part_of(array, rank, size) for array in dense_data(size, 3))
    assert not warned(lambda: fit(dense_model(), x, y, linear_loss))


def test_zeros_and_nan_prove_nothing(hvd):
    def run():
        same_batches.note([tf.zeros([3]), None, tf.constant([-0.0, np.nan])])
        same_batches.warn_if_same()
        same_batches.note([None])
        same_batches.warn_if_same()

    assert not warned(run)


def test_order_and_place_count(hvd, rank, size):
    values = np.array([1.0, 2.0, 3.0], np.float32)

    def differing(first, second):
        def run():
            same_batches.note([tf.constant(first if rank == 0 else second)])
            same_batches.note([tf.constant(second if rank == 0 else first)])
            same_batches.warn_if_same()

        return not warned(run)

    assert differing(values, values[::-1].copy())

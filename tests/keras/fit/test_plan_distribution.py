"""`keras.distribution.DataParallel`: a model that its first step builds begins with the weights of rank 0."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.distributed_keras import (
    BATCH,
    FEATURES,
    arguments,
    distributed,
    same_on_all,
    samples,
    weights,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")


class OfItsOwnStep(keras.Model):
    """A model without `call`, whose step applies two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(6, activation="tanh")
        self.head = keras.layers.Dense(1, activation="sigmoid")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.head(self.hidden(x)) - y) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


class Subclassed(OfItsOwnStep):
    """A model whose layers are built by its first call."""

    train_step = keras.Model.train_step

    def call(self, inputs):
        return self.head(self.hidden(inputs))


class BuiltInPart(Subclassed):
    """One that says it is built, and has layers that are not."""

    def build(self, shape):
        self.hidden.build(shape)
        self.built = True


def without_input() -> keras.Model:
    return keras.Sequential([keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1, activation="sigmoid")])


def built_in_part() -> keras.Model:
    net = BuiltInPart()
    net.build((None, FEATURES))
    return net


BUILT_BY_A_STEP = [
    (Subclassed, "arrays", False),
    (OfItsOwnStep, "generator", False),
    (built_in_part, "arrays", False),
    (without_input, "arrays", True),
    *in_full(
        *itertools.product((Subclassed, OfItsOwnStep, built_in_part, without_input), ("arrays", "generator"), (0, 1))
    ),
]


@pytest.mark.parametrize(("made", "kind", "eagerly"), BUILT_BY_A_STEP)
def test_the_first_step_of_a_model_that_it_builds_has_the_weights_of_rank_0(hvd, rank, mpi, made, kind, eagerly):
    """The ranks would begin with different weights."""
    x, y = samples(BATCH * 3)

    def trained(seed: int) -> keras.Model:
        keras.utils.set_random_seed(seed)
        net = made()
        net.compile(keras.optimizers.SGD(0.5, momentum=0.9), "mse", run_eagerly=bool(eagerly))
        net.fit(**arguments(kind, x, y), shuffle=False, epochs=2, verbose=0)
        return net

    alone = trained(5)
    with distributed():
        together = trained(5 + rank)
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-5, atol=1e-6)
    assert same_on_all(mpi, weights(together))

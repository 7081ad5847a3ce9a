"""Wrapped optimizers that are copied."""

from __future__ import annotations

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.roles.wrapping import reducer_of
from tests.support.optimizer_classes import RegisteredSGD

pytestmark = pytest.mark.ranks("2")


def reduces(optimizer, rank: int, size: int) -> bool:
    """Whether the optimizer (learning rate 1, plain SGD) applies the ranks' mean."""
    variable = keras.Variable([0.0])
    optimizer.apply([tf.constant([float(rank)])], [variable])
    return bool(np.isclose(variable.numpy()[0], -(size - 1) / 2))


@pytest.mark.parametrize("optimizer_class", [keras.optimizers.SGD, RegisteredSGD])
@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copied_optimizer_reduces_with_the_same_settings(hvd, rank, size, optimizer_class, copied):
    original = hvk.DistributedOptimizer(optimizer_class(1.0, clipnorm=100.0), compression=hvk.Compression.bf16)
    twin = copied(original)
    assert twin is not original
    assert isinstance(twin, optimizer_class)
    assert twin.clipnorm == 100.0
    assert reducer_of(twin).settings == reducer_of(original).settings
    assert reducer_of(twin) is not reducer_of(original)
    assert reduces(twin, rank, size)
    assert reduces(original, rank, size)

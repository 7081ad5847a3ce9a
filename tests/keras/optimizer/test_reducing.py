"""The class of a wrapped optimizer, by itself."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.keras.optimizer.distributed import wrap_class

pytestmark = pytest.mark.ranks("2")


def reduces(optimizer, rank: int, size: int) -> bool:
    """Whether the optimizer (learning rate 1, plain SGD) applies the ranks' mean."""
    variable = keras.Variable([0.0])
    optimizer.apply([tf.constant([float(rank)])], [variable])
    return bool(np.isclose(variable.numpy()[0], -(size - 1) / 2))


def test_wrap_class_alone(hvd, rank, size):
    assert wrap_class(keras.optimizers.SGD) is wrap_class(keras.optimizers.SGD)
    assert wrap_class(wrap_class(keras.optimizers.SGD)) is wrap_class(keras.optimizers.SGD)
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.__class__ = wrap_class(type(optimizer))
    assert reduces(optimizer, rank, size)

"""What an optimizer keeps for variables."""

from __future__ import annotations

import keras
import tensorflow as tf

from smddp_tf.keras.roles.optimizers import local_of, slots_of


def test_slots_are_those_of_the_variables_that_were_asked_for() -> None:
    first, second = keras.Variable([1.0]), keras.Variable([[1.0, 2.0]])
    optimizer = keras.optimizers.Adam()
    optimizer.build([first, second])
    slots = slots_of(keras.optimizers.LossScaleOptimizer(optimizer), [second])
    assert [tuple(slot.shape) for slot in slots if slot is not second] == [(1, 2), (1, 2)]  # both momenta
    assert id(first) not in map(id, slots)
    assert slots_of(optimizer, []) == []
    assert slots_of(None, [first]) == []
    assert slots_of(keras.optimizers.SGD(), [first]) == []  # it has none of it


def test_a_model_that_is_not_distributed_has_no_local_variables() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert local_of(model) == []
    model.compile("adam", "mse")
    model.train_on_batch(tf.ones([2, 2]), tf.ones([2, 1]))
    assert local_of(model) == []

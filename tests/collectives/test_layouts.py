"""Variables that are a rank's own part of a table: the mark is on the Keras variable and on the one inside."""

from __future__ import annotations

import keras
import tensorflow as tf

from smddp_tf.collectives.layouts import identity, layout_of, mark


def test_a_keras_variable_and_the_one_inside_are_marked() -> None:
    table, other = keras.Variable([[1.0, 2.0]]), keras.Variable([[1.0, 2.0]])
    layout = object()
    mark(table, layout)
    assert layout_of(table) is layout
    assert layout_of(table.value) is layout
    assert layout_of(other) is None
    assert layout_of(other.value) is None


def test_the_variable_inside() -> None:
    inside, of_keras = tf.Variable([3.0]), keras.Variable([4.0])
    assert identity(inside) is inside
    assert identity(of_keras) is of_keras.value
    tensor = tf.constant(5.0)
    assert identity(tensor) is tensor

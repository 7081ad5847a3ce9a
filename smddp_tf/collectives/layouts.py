"""Variables of which each rank has a part of its own, marked with the layout of the whole."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def mark(variable: Any, layout: Any) -> None:
    """Makes a variable local to its rank everywhere: it is this rank's part of a table that is cut over the ranks.

    Its gradient must hold what the data of all ranks contribute, and zeros for a rank without data: nothing of it is
    left out where this rank has no data.

    Args:
        variable: `tf.Variable` or Keras variable.
        layout: says which part; see `smddp_tf.keras.layers.placement.Layout`.
    """
    for each in (variable, identity(variable)):
        each.smddp_local = layout


def layout_of(variable: Any) -> Any:
    """What `mark` was given, or None for a variable that is the same on all ranks."""
    return getattr(variable, "smddp_local", None)


def identity(source: Any) -> Any:
    """What a Keras variable and the TensorFlow variable inside of it have in common.

    A Keras variable that was made in a `StatelessScope` has none inside until Keras has left that scope.
    """
    value = None if isinstance(source, (tf.Variable, tf.Tensor)) else getattr(source, "_value", None)
    return source if value is None else value

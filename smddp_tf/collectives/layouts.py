"""Variables of which each rank has its own shard, marked with the layout of the full variable."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def mark(variable: tf.Variable | tf.keras.Variable, layout: object) -> None:
    """Makes a variable local to its rank everywhere: it is this rank's shard of a table.

    Its gradient must contain the contributions of all ranks' data, and zeros for a rank without data. It is applied
    in full also where this rank has no data.

    Args:
        variable: `tf.Variable` or Keras variable.
        layout: says which shard; see `smddp_tf.keras.layers.placement.Layout`.
    """
    for target in (variable, identity(variable)):
        target.smddp_local = layout


def layout_of(variable: object) -> Any:
    """Returns the layout given to `mark`, or None for a variable that is the same on all ranks."""
    return getattr(variable, "smddp_local", None)


def identity(source: object) -> Any:
    """Returns the TensorFlow variable inside a Keras variable, or `source` itself.

    A Keras variable that was made in a `StatelessScope` has none inside until Keras has left that scope.
    """
    value = None if isinstance(source, (tf.Variable, tf.Tensor)) else getattr(source, "_value", None)
    return source if value is None else value

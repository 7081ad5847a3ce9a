"""Makes the variables that the first step of `fit` would make, before it.

TensorFlow traces a function twice whose first trace makes variables, as those of metrics and of an optimizer are, and
traces are most of the time before the first step.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from smddp_tf.keras._backend import keras

_STEP = ("train_step", "compute_loss", "compute_metrics")


def make_variables(model: keras.Model, batch: Any, must: bool) -> None:
    """Makes what Keras can make from shapes alone; the rest is made by the first step, as without this.

    Without `must`, only of models that are built and whose steps are Keras's own: other steps may use an optimizer in
    their own way.

    Args:
        model: compiled.
        batch: the `tf.TensorSpec` of a batch's tensors, in their structure.
        must: steps without data need the variables, which those do not make.
    """
    is_own = any(getattr(type(model), name) is not getattr(keras.Model, name) for name in _STEP)
    is_plain = not is_own and not model.run_eagerly and all(layer.built for layer in model._flatten_layers())
    if (must or is_plain) and all(isinstance(leaf, tf.TensorSpec) for leaf in tf.nest.flatten(batch)):
        with contextlib.suppress(Exception):  # where something is wrong with the model, its first step says so
            model._symbolic_build(data_batch=batch)

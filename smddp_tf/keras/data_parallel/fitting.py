"""The tasks of `fit` under a distribution beside reducing: equal weights, metrics of all ranks, files of one rank."""

from __future__ import annotations

import tensorflow as tf

from smddp_tf.collectives.rank_facts import warn_on_rank_zero
from smddp_tf.keras._backend import keras
from smddp_tf.keras.callbacks.best_model_checkpoint import BestModelCheckpoint
from smddp_tf.keras.callbacks.broadcast_global_variables import BroadcastGlobalVariablesCallback
from smddp_tf.keras.callbacks.metric_average import MetricAverageCallback
from smddp_tf.keras.callbacks.metric_sum import MetricSumCallback
from smddp_tf.keras.callbacks.rank_zero import on_rank_zero
from smddp_tf.keras.roles.local_variables import local_of

_WRITE = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "OrbaxCheckpoint", "RemoteMonitor", "TensorBoard")


def callbacks_before(model: keras.Model, users: list[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """Returns the callbacks that come before the user's, unless these have such ones."""
    added: list[keras.callbacks.Callback] = []
    if not any(isinstance(each, BroadcastGlobalVariablesCallback) for each in users):
        added.append(BroadcastGlobalVariablesCallback(0, local_variables=local_of(model)))
    if not any(isinstance(each, (MetricAverageCallback, MetricSumCallback)) for each in users):
        added.append(MetricSumCallback())
    return added


def build_by_tracing(model: keras.Model, dataset: tf.data.Dataset) -> None:
    """Makes the variables of layers, metrics and optimizers that a train step makes, without computing a step.

    Where tracing fails rank 0 warns: the first step, if it is run eagerly, computes with each rank's own weights.
    """
    if all(layer.built for layer in model._flatten_layers()):
        return
    convert = getattr(model, "_autoconvert_optionals", lambda step: step)
    try:
        tf.function(convert(model.train_step), autograph=False).get_concrete_function(dataset.element_spec)
    except Exception as error:
        warn_on_rank_zero(
            "The model could not be built before its first step, which therefore computes with each rank's own "
            f"weights. Build the model before `fit`. Received: {type(error).__name__}: {error}"
        )


def writing_on_rank_zero(callbacks: list[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """The callbacks, with those of Keras that write files doing so on rank 0 only."""
    classes = tuple(getattr(keras.callbacks, name) for name in _WRITE if hasattr(keras.callbacks, name))
    on_all = BestModelCheckpoint  # belongs on all ranks, and writes on one
    return [on_rank_zero(c) if isinstance(c, classes) and not isinstance(c, on_all) else c for c in callbacks]

"""The states of a model's metrics: which of them can be added over the ranks, and what the sums give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.keras._backend import keras
from smddp_tf.keras.packed import number_or_array

__all__ = ["assign", "is_additive", "leaves", "results_of_sums"]


def leaves(metrics: Iterable[Any]) -> list[Any]:
    """The single metrics: Keras keeps those given to `compile` inside of one that stands for all."""
    found = {}
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        for leaf in leaves(inner) if inner is not None else [metric]:
            found[id(leaf)] = leaf
    return list(found.values())


def is_additive(metric: Any) -> bool:
    """Are its states sums over samples? Those of Keras's metrics are; of others we cannot know."""
    base = keras.metrics.Metric
    declared = getattr(metric, "additive_state", None)
    if declared is not None:
        return bool(declared)
    return any(
        issubclass(each, base) and each is not base and each.__module__.split(".")[0] == "keras"
        for each in type(metric).__mro__
    )


def results_of_sums(model: Any) -> dict[str, Any]:
    """The results of the additive metrics of a model from their states as they are now, by the names in the logs."""
    others = [metric.name for metric in leaves(model.metrics) if not is_additive(metric)]
    return {
        key: number_or_array(keras.ops.convert_to_numpy(value))
        for key, value in model.get_metrics_result().items()
        if not any(key == name or key.endswith(f"_{name}") for name in others)
    }


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Sets variables of metrics to arrays of their shapes."""
    for variable, value in zip(variables, values):
        variable.assign(tf.cast(value, variable.dtype))

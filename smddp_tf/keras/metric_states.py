"""The states of a model's metrics: which of them can be brought together over the ranks, and what they give then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.collectives.objects import allgather_object
from smddp_tf.collectives.reduce_op import Sum
from smddp_tf.keras._backend import keras
from smddp_tf.keras.packed import number_or_array, reduce_packed


def leaves(metrics: Iterable[Any]) -> list[Any]:
    """The single metrics: Keras keeps those given to `compile` inside of one that stands for all."""
    found = {}
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        for leaf in leaves(inner) if inner is not None else [metric]:
            found[id(leaf)] = leaf
    return list(found.values())


def exact_metrics(model: Any) -> list[Any]:
    """Those whose states can be brought together: sums, and what has a `merge_state(metrics)`, as Keras 2 names it."""
    return [
        metric
        for metric in leaves(model.metrics)
        if _is_additive(metric) or callable(getattr(metric, "merge_state", None))
    ]


def states_of(metrics: Iterable[Any]) -> list[np.ndarray]:
    """Copies of the values of their variables, one after the other."""
    return [np.array(keras.ops.convert_to_numpy(each)) for metric in metrics for each in metric.variables]


def take_over_ranks(metrics: Sequence[Any], states: Sequence[np.ndarray], name: str) -> None:
    """Gives metrics the states that one process on the data of all ranks has: sums, or what `merge_state` makes.

    Args:
        metrics: of `exact_metrics`, the same on all ranks.
        states: this rank's, as `states_of` gives them.
        name: of the exchange.
    """
    starts = np.cumsum([0, *(len(metric.variables) for metric in metrics)])
    parts = [list(states[begin:end]) for begin, end in zip(starts, starts[1:])]
    additive = [number for number, metric in enumerate(metrics) if _is_additive(metric)]
    merged = [number for number in range(len(metrics)) if number not in additive]
    if additive:
        sums = reduce_packed([state for number in additive for state in parts[number]], Sum, name)
        restore([metrics[number] for number in additive], sums)
    if merged:
        of_ranks = allgather_object([parts[number] for number in merged], name=of_thread(f"{name}, merge_state"))
        for place, number in enumerate(merged):
            _merge(metrics[number], [of_rank[place] for of_rank in of_ranks])


def _merge(metric: Any, of_ranks: Sequence[Sequence[np.ndarray]]) -> None:
    others = [type(metric).from_config(metric.get_config()) for _ in of_ranks[1:]]
    for each, states in zip((metric, *others), of_ranks):
        restore([each], states)
    metric.merge_state(others)


def _is_additive(metric: Any) -> bool:
    """Are its states sums over samples? Those of Keras's metrics are; of others we cannot know."""
    base = keras.metrics.Metric
    declared = getattr(metric, "additive_state", None)
    if declared is not None:
        return bool(declared)
    return any(
        issubclass(each, base) and each is not base and each.__module__.split(".")[0] == "keras"
        for each in type(metric).__mro__
    )


def results_of_exact(model: Any) -> dict[str, Any]:
    """The results of `exact_metrics` from their states as they are now, by the names in the logs."""
    exact = exact_metrics(model)
    others = [metric.name for metric in leaves(model.metrics) if metric not in exact]
    return {
        key: number_or_array(keras.ops.convert_to_numpy(value))
        for key, value in model.get_metrics_result().items()
        if not any(key == name or key.endswith(f"_{name}") for name in others)
    }


def restore(metrics: Iterable[Any], states: Sequence[np.ndarray]) -> None:
    """Gives metrics the states that `states_of` has copied, or others of the same shapes."""
    for variable, value in zip((variable for metric in metrics for variable in metric.variables), states):
        variable.assign(tf.cast(value, variable.dtype))

"""Combines the metrics of the ranks, for `hvd.evaluate` and the callbacks that average or sum metrics.

Entries of logs become means weighted by samples. Entries of metrics whose states can be merged become what one process
computes from all data. Losses of global batches are combined before, by `global_means.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank
from smddp_tf.collectives import ops, rank_facts, reduce_op
from smddp_tf.keras._backend import keras
from smddp_tf.keras.patch_table import is_of_keras
from smddp_tf.keras.roles.step_hooks import hooks_of

VALIDATION = "val_"  # prefix of the entries of the validation


class Seen(NamedTuple):
    """The result of one pass of this rank over data.

    Attributes:
        samples: the number of samples.
        states: the states of `exact_metrics` after the pass.
    """

    samples: float
    states: list[np.ndarray]


def samples_of(model: keras.Model, kind: str) -> float:
    """Returns the samples of this rank in steps of `kind` ("train" or "test") since the epoch or evaluation began."""
    return float(hooks_of(model, kind).samples)


def means_by_samples(
    entries: Mapping[str, np.ndarray], samples: Mapping[str, float], name: str
) -> dict[str, float | np.ndarray]:
    """Returns the means of the entries over the ranks, weighted by samples.

    Args:
        entries: arrays; names, shapes and order are equal on all ranks.
        samples: this rank's weight: by `VALIDATION` for entries with this prefix, by "" for the others.
        name: of the reduction.
    """
    if not entries:
        return {}
    counts = [samples[VALIDATION if key.startswith(VALIDATION) and VALIDATION in samples else ""] for key in entries]
    # The values of a rank without samples may be NaN.
    weighted = [array * count if count else np.zeros_like(array) for array, count in zip(entries.values(), counts)]
    *totals, sums = reduce_packed([*weighted, np.array(counts)], name)
    return {key: number_or_array(total / max(count, 1.0)) for key, total, count in zip(entries, totals, sums)}


def merged(
    model: Any, entries: Mapping[str, np.ndarray], passes: Mapping[str, Seen], name: str, takes_over: bool = False
) -> dict[str, Any]:
    """Returns the entries that one process would have for the data of all ranks.

    Args:
        model: the model, with the same metrics on all ranks.
        entries: as for `means_by_samples`.
        passes: the passes over data, by the prefix of their entries.
        name: of the exchanges.
        takes_over: whether the model's metrics get the merged states; else they keep this rank's.
    """
    samples = {kind: seen.samples for kind, seen in passes.items()}
    results: dict[str, Any] = dict(means_by_samples(entries, samples, f"{name} (means)"))
    metrics = exact_metrics(model)
    own = states_of(metrics)
    try:
        for kind, seen in passes.items():
            take_over_ranks(metrics, seen.states, f"{name} (states of metrics)")
            exact = {f"{kind}{key}": value for key, value in results_of_exact(model).items()}
            results.update({key: value for key, value in exact.items() if key in entries})
    finally:
        if not takes_over:
            restore(metrics, own)
    return results


def numeric_entries(logs: dict[str, Any]) -> dict[str, Any]:
    """Returns the numeric entries of logs as float64 arrays, sorted by name."""
    arrays = {key: value.numpy() if tf.is_tensor(value) else np.asarray(value) for key, value in sorted(logs.items())}
    return {key: array.astype(np.float64) for key, array in arrays.items() if array.dtype.kind in "iuf"}


def check_same_on_all_ranks(values: Mapping[str, np.ndarray], needed_by: str) -> None:
    """Raises the same error on every rank where ranks have different metrics.

    Args:
        values: arrays by name; only names and shapes are compared.
        needed_by: the name of the caller, for the error.

    Raises:
        ValueError: a name or a shape differs between ranks.
    """
    names = [f"{key}{list(value.shape)}" if value.ndim else key for key, value in values.items()]
    of_ranks = rank_facts.objects_of_ranks(names, f"{needed_by} (which metrics)")
    for other, theirs in enumerate(of_ranks):
        if theirs != of_ranks[0]:
            raise ValueError(
                f"{needed_by} needs the same metrics on all ranks. "
                f"Received: {of_ranks[0]} on rank 0 and {theirs} on rank {other} (this is rank {rank()}). "
                "Compile the same metrics everywhere, and validate on all ranks or on none."
            )


# --- states of metrics


def leaves(metrics: Iterable[Any]) -> list[Any]:
    """Returns the single metrics: Keras wraps the metrics of `compile` in one `CompileMetrics`."""
    pairs = [(metric, getattr(metric, "metrics", None)) for metric in metrics]
    found = [leaf for metric, inner in pairs for leaf in ([metric] if inner is None else leaves(inner))]
    return list({id(leaf): leaf for leaf in found}.values())


def exact_metrics(model: keras.Model) -> list[Any]:
    """Returns the metrics with states that can be merged: sums, and those with Keras 2's `merge_state(metrics)`."""
    metrics = leaves(model.metrics)
    return [each for each in metrics if _is_additive(each) or callable(getattr(each, "merge_state", None))]


def states_of(metrics: Iterable[Any]) -> list[np.ndarray]:
    """Returns copies of the values of the variables of metrics, in order."""
    return [np.array(keras.ops.convert_to_numpy(each)) for metric in metrics for each in metric.variables]


def take_over_ranks(metrics: Sequence[Any], states: Sequence[np.ndarray], name: str) -> None:
    """Sets metrics to the states merged over the ranks: sums, or the result of `merge_state`.

    Args:
        metrics: from `exact_metrics`, the same on all ranks.
        states: this rank's, from `states_of`.
        name: of the exchange.
    """
    rest = iter(states)
    pairs = [(metric, list(itertools.islice(rest, len(metric.variables)))) for metric in metrics]
    additive = [pair for pair in pairs if _is_additive(pair[0])]
    merged = [pair for pair in pairs if not _is_additive(pair[0])]
    if additive:
        sums = reduce_packed([state for _, own in additive for state in own], name)
        restore([metric for metric, _ in additive], sums)
    if merged:
        of_ranks = rank_facts.objects_of_ranks([own for _, own in merged], f"{name}, merge_state")
        for (metric, _), *of_metric in zip(merged, *of_ranks):
            _merge(metric, of_metric)


def _merge(metric: keras.metrics.Metric, of_ranks: Sequence[Sequence[np.ndarray]]) -> None:
    others = [type(metric).from_config(metric.get_config()) for _ in of_ranks[1:]]
    for each, states in zip((metric, *others), of_ranks):
        restore([each], states)
    metric.merge_state(others)


def _is_additive(metric: keras.metrics.Metric) -> bool:
    """Whether the states are sums over samples: true of Keras's metrics; others declare it by `additive_state`."""
    base = keras.metrics.Metric
    declared = getattr(metric, "additive_state", None)
    if declared is not None:
        return bool(declared)
    return any(issubclass(each, base) and each is not base and is_of_keras(each) for each in type(metric).__mro__)


def results_of_exact(model: keras.Model) -> dict[str, Any]:
    """Returns the results of `exact_metrics` from their present states, by the names in the logs."""
    exact = exact_metrics(model)
    others = [metric.name for metric in leaves(model.metrics) if metric not in exact]
    return {
        key: number_or_array(keras.ops.convert_to_numpy(value))
        for key, value in model.get_metrics_result().items()
        if not any(key == name or key.endswith(f"_{name}") for name in others)
    }


def restore(metrics: Iterable[Any], states: Sequence[np.ndarray]) -> None:
    """Sets metrics to states from `states_of`, or others of the same shapes."""
    for variable, value in zip((variable for metric in metrics for variable in metric.variables), states):
        variable.assign(tf.cast(value, variable.dtype))


# --- arrays of several shapes, sent as one tensor


def reduce_packed(arrays: Sequence[np.ndarray], name: str) -> list[np.ndarray]:
    """Sums arrays over all ranks, in float64.

    Args:
        arrays: shapes and their order are equal on all ranks.
        name: of the reduction.
    """
    flat = np.concatenate([np.ravel(array).astype(np.float64) for array in arrays])
    reduced = ops.allreduce(tf.constant(flat), op=reduce_op.Sum, name=of_thread(name)).numpy()
    pieces = np.split(reduced, np.cumsum([np.size(array) for array in arrays])[:-1])
    return [piece.reshape(np.shape(array)) for piece, array in zip(pieces, arrays)]


def number_or_array(value: np.ndarray) -> float | np.ndarray:
    """Returns a float for an array without dimensions, as logs have them; other arrays unchanged."""
    return float(value) if np.ndim(value) == 0 else value

"""Metrics of all ranks from those of each: what `hvd.evaluate` and the callbacks put into their logs.

Entries of logs become means weighted by samples. Those of metrics whose states can be brought together become what one
process has computed from all data. Losses of global batches are right before they come here; see `global_means.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from smddp_tf import ops
from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank
from smddp_tf.keras.metric_states import exact_metrics, restore, results_of_exact, states_of, take_over_ranks
from smddp_tf.keras.packed import number_or_array, weighted_means
from smddp_tf.keras.roles.step_hooks import hooks_of
from smddp_tf.objects import allgather_object

VALIDATION = "val_"  # what the names of entries of the validation begin with


class Seen(NamedTuple):
    """What this rank has seen in one pass over data.

    Attributes:
        samples: their number.
        states: of `exact_metrics`, after the pass.
    """

    samples: float
    states: list[np.ndarray]


def samples_of(model: Any, kind: str) -> float:
    """The samples of this rank in steps of `kind` ("train" or "test") since the epoch or the evaluation began."""
    return float(hooks_of(model, kind).samples)


def means_by_samples(
    entries: Mapping[str, np.ndarray], samples: Mapping[str, float], name: str
) -> dict[str, float | np.ndarray]:
    """Means of the entries over the ranks.

    Args:
        entries: on all ranks the same names and shapes, in the same order.
        samples: by `VALIDATION` and "", for entries whose name begins so and for others, this rank's weight.
        name: of the reduction.
    """
    kinds = [VALIDATION if key.startswith(VALIDATION) and VALIDATION in samples else "" for key in entries]
    means = weighted_means(list(entries.values()), [samples[kind] for kind in kinds], name)
    return {key: number_or_array(mean) for key, mean in zip(entries, means)}


def merged(
    model: Any, entries: Mapping[str, np.ndarray], passes: Mapping[str, Seen], name: str, takes_over: bool = False
) -> dict[str, Any]:
    """The entries of one process on the data of all ranks.

    Args:
        model: with the same metrics on all ranks.
        entries: as for `means_by_samples`.
        passes: what was seen, by the beginning of the names of its entries.
        name: of the exchanges.
        takes_over: whether the model's metrics get the states of all ranks; else they keep their own.
    """
    found: dict[str, Any] = {
        **means_by_samples(entries, {kind: seen.samples for kind, seen in passes.items()}, f"{name} (means)")
    }
    metrics = exact_metrics(model)
    own = states_of(metrics)
    try:
        for kind, seen in passes.items():
            take_over_ranks(metrics, seen.states, f"{name} (states of metrics)")
            exact = {f"{kind}{key}": value for key, value in results_of_exact(model).items()}
            found.update({key: value for key, value in exact.items() if key in entries})
    finally:
        if not takes_over:
            restore(metrics, own)
    return found


def numeric_entries(logs: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries that have a mean, as float64 arrays, sorted by name."""
    arrays = {key: value.numpy() if tf.is_tensor(value) else np.asarray(value) for key, value in sorted(logs.items())}
    return {key: array.astype(np.float64) for key, array in arrays.items() if array.dtype.kind in "iuf"}


def check_same_on_all_ranks(values: Mapping[str, np.ndarray], needed_by: str) -> None:
    """Raises the same error on every rank where ranks bring different metrics, instead of mixing them up.

    Args:
        values: arrays by name; only names and shapes are compared.
        needed_by: the name of the callback.

    Raises:
        ValueError: a name or a shape differs between ranks.
    """
    names = [f"{key}{list(value.shape)}" if value.ndim else key for key, value in values.items()]
    checksum = zlib.crc32("\n".join(names).encode())
    checksums = ops.allgather(tf.constant([checksum], tf.int64), name=of_thread(f"{needed_by} (which metrics)")).numpy()
    if (checksums == checksums[0]).all():
        return
    names_of_rank = allgather_object(names, name=of_thread(f"{needed_by} (metrics that differ)"))
    other = next(i for i, theirs in enumerate(names_of_rank) if theirs != names_of_rank[0])
    raise ValueError(
        f"{needed_by} needs the same metrics on all ranks. "
        f"Received: {names_of_rank[0]} on rank 0 and {names_of_rank[other]} on rank {other} (this is rank {rank()}). "
        "Compile the same metrics everywhere, and validate on all ranks or on none."
    )

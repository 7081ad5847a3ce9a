"""MetricAverageCallback: epoch metrics that mean the same on every rank."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf import ops
from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank, size
from smddp_tf.functions import allgather_object
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.fit.step_hooks import hooks_of
from smddp_tf.keras.packed import number_or_array, reduce_packed
from smddp_tf.reduce_op import Average, Sum

_NAME = "MetricAverageCallback"


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces every metric in the logs of an epoch by its mean over all ranks.

    Each rank computes metrics on its own part of the data. Put this callback before those that read metrics
    (`ReduceLROnPlateau`, `EarlyStopping`, `ModelCheckpoint`, `TensorBoard`): they see the mean, and decide the same on
    every rank. `History` and the progress bar come last and see it too. Validation metrics (`val_...`) are included, so
    either all ranks validate or none does.

    The mean is unweighted, as Horovod's: with unequal numbers of samples, one on a rank with few counts more. With
    `weighted=True` each rank's value counts by the samples the rank has seen in the epoch, in training or, for
    `val_...`, in validation. That is exact for values that are means over samples (loss, accuracy); it is not for
    others (AUC, recall): see `hvd.evaluate` for those.

    Example:

    >>> callbacks = [hvd.callbacks.MetricAverageCallback(), keras.callbacks.EarlyStopping("val_loss")]

    Args:
        device: Taken for compatibility with Horovod; has no effect.
        weighted: Boolean, whether samples count instead of ranks. Defaults to `False`.
    """

    for_all_ranks = True

    def __init__(self, device: str = "", *, weighted: bool = False) -> None:
        super().__init__()
        del device
        self.counts_samples = weighted
        if weighted:
            needs_keras_3("MetricAverageCallback(weighted=True)")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages `logs` in place; all numeric entries travel as one tensor, in the order of their sorted names."""
        if size() == 1:
            return
        values = _numeric_entries(logs or {})
        _check_same_on_all_ranks(values)
        if not values or logs is None:
            return
        if self.counts_samples:
            means = _weighted_means(list(values.values()), [self._samples(key) for key in values])
        else:
            means = reduce_packed(list(values.values()), Average, f"{_NAME} (means)")
        logs.update({key: number_or_array(mean) for key, mean in zip(values, means)})

    def _samples(self, key: Any) -> float:
        return float(hooks_of(self.model, "test" if key.startswith("val_") else "train").samples)


def _weighted_means(values: Any, samples: Any) -> list[Any]:
    # What a rank without samples has to say may be NaN.
    weighted = [value * count if count else np.zeros_like(value) for value, count in zip(values, samples)]
    *sums, counts = reduce_packed([*weighted, np.array(samples)], Sum, f"{_NAME} (weighted means)")
    return [total / max(count, 1.0) for total, count in zip(sums, counts)]


def _numeric_entries(logs: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries that have a mean, as float64 arrays, sorted by name."""
    arrays = {key: _as_array(value) for key, value in sorted(logs.items())}
    return {key: array.astype(np.float64) for key, array in arrays.items() if array.dtype.kind in "iuf"}


def _as_array(value: Any) -> Any:
    return value.numpy() if tf.is_tensor(value) else np.asarray(value)


def _check_same_on_all_ranks(values: Any) -> None:
    """Raises the same error on every rank where ranks bring different metrics, instead of mixing them up."""
    names = [f"{key}{list(value.shape)}" if value.ndim else key for key, value in values.items()]
    checksum = zlib.crc32("\n".join(names).encode())
    checksums = ops.allgather(tf.constant([checksum], tf.int64), name=of_thread(f"{_NAME} (which metrics)")).numpy()
    if (checksums == checksums[0]).all():
        return
    names_of_rank = allgather_object(names, name=of_thread(f"{_NAME} (metrics that differ)"))
    other = next(i for i, theirs in enumerate(names_of_rank) if theirs != names_of_rank[0])
    raise ValueError(
        "MetricAverageCallback needs the same metrics on all ranks. "
        f"Received: {names_of_rank[0]} on rank 0 and {names_of_rank[other]} on rank {other} (this is rank {rank()}). "
        "Compile the same metrics everywhere, and validate on all ranks or on none."
    )

"""MetricAverageCallback: epoch metrics that mean the same on every rank."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank, size
from smddp_tf.collectives import ops
from smddp_tf.collectives.functions import allgather_object
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.packed import number_or_array, reduce_packed, weighted_means
from smddp_tf.keras.roles.step_hooks import hooks_of

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
    others (AUC, recall): see `MetricSumCallback` for those.

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
        """Averages `logs` in place; all numeric entries are sent as one tensor, in the order of their sorted names."""
        if size() == 1:
            return
        values = numeric_entries(logs or {})
        check_same_on_all_ranks(values, _NAME)
        if not values or logs is None:
            return
        if self.counts_samples:
            kinds = ["test" if key.startswith("val_") else "train" for key in values]
            samples = [float(hooks_of(self.model, kind).samples) for kind in kinds]
            means = weighted_means(list(values.values()), samples, f"{_NAME} (weighted means)")
        else:
            means = reduce_packed(list(values.values()), Average, f"{_NAME} (means)")
        logs.update({key: number_or_array(mean) for key, mean in zip(values, means)})


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

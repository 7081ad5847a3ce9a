"""MetricAverageCallback: epoch metrics that mean the same on every rank."""

from __future__ import annotations

import zlib

import numpy as np
import tensorflow as tf

from smddp_tf import ops
from smddp_tf.basics import rank, size
from smddp_tf.functions import allgather_object
from smddp_tf.keras._backend import keras
from smddp_tf.reduce_op import Average

_NAME = "smddp_tf.keras.metrics"


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces every metric in the logs of an epoch by its mean over all ranks.

    Each rank computes metrics on its own part of the data. Put this callback before those that read metrics
    (`ReduceLROnPlateau`, `EarlyStopping`, `ModelCheckpoint`, `TensorBoard`): they see the mean, and decide the same on
    every rank. `History` and the progress bar come last and see it too. Validation metrics (`val_...`) are included, so
    either all ranks validate or none does.

    The mean is unweighted: give all ranks equally many samples, or accept that a sample on a rank with few counts more.

    Example:

    >>> callbacks = [hvd.callbacks.MetricAverageCallback(), keras.callbacks.EarlyStopping("val_loss")]

    Args:
        device: Taken for compatibility with Horovod; has no effect.
    """

    def __init__(self, device=""):
        super().__init__()
        del device

    def on_epoch_end(self, epoch, logs=None):
        """Averages `logs` in place; all numeric entries travel as one tensor, in the order of their sorted names."""
        if size() == 1:
            return
        values = _numeric_entries(logs or {})
        _check_same_on_all_ranks(values)
        if not values:
            return
        flat = np.concatenate([np.ravel(value) for value in values.values()])
        mean = ops.allreduce(tf.constant(flat, tf.float64), op=Average, name=_NAME).numpy()
        first = 0
        for key, value in values.items():
            piece = mean[first : first + value.size]
            logs[key] = float(piece[0]) if value.ndim == 0 else piece.reshape(value.shape)
            first += value.size


def _numeric_entries(logs):
    """Returns the entries that have a mean, as float64 arrays, sorted by name."""
    arrays = {key: _as_array(value) for key, value in sorted(logs.items())}
    return {key: array.astype(np.float64) for key, array in arrays.items() if array.dtype.kind in "iuf"}


def _as_array(value):
    return value.numpy() if tf.is_tensor(value) else np.asarray(value)


def _check_same_on_all_ranks(values):
    """Raises the same error on every rank where ranks bring different metrics, instead of mixing them up."""
    names = [f"{key}{list(value.shape)}" if value.ndim else key for key, value in values.items()]
    checksum = zlib.crc32("\n".join(names).encode())
    checksums = ops.allgather(tf.constant([checksum], tf.int64), name=f"{_NAME}.names").numpy()
    if (checksums == checksums[0]).all():
        return
    names_of_rank = allgather_object(names, name=f"{_NAME}.differ")
    other = next(i for i, theirs in enumerate(names_of_rank) if theirs != names_of_rank[0])
    raise ValueError(
        "MetricAverageCallback needs the same metrics on all ranks. "
        f"Received: {names_of_rank[0]} on rank 0 and {names_of_rank[other]} on rank {other} (this is rank {rank()}). "
        "Compile the same metrics everywhere, and validate on all ranks or on none."
    )

"""The entries of an epoch's logs, and whether all ranks have the same."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf import ops
from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank
from smddp_tf.functions import allgather_object


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

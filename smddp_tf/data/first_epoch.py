"""Finds out whether every rank reads all files of the training data, by what Linux counts in the first epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence

from smddp_tf._warn import warn
from smddp_tf.basics import rank
from smddp_tf.data import epochs, file_readers
from smddp_tf.monitor.bytes_read import bytes_read

# The attribute, of datasets sharded by element, that holds the dataset before that.
UNCUT = "_smddp_uncut"

_LEAST = 1 << 26  # bytes of all files: reading less costs nothing
_SHARE = 0.9


class FirstEpoch:
    """Counts the bytes that this rank reads from now on, and knows which data of `fit` were sharded by element."""

    _has_warned = False  # once in a process

    def __init__(self, data: object) -> None:
        self._uncut = epochs.found_in(data, UNCUT)
        self._before = bytes_read()

    def bytes_read(self) -> int:
        """Returns the bytes that this rank has read since the object was made."""
        return bytes_read() - self._before

    def warn_if_all_read_all(self, of_ranks: Sequence[float]) -> None:
        """Warns on rank 0, once, where each rank has read about as much as all files have, by the bytes of each."""
        if rank() != 0 or len(of_ranks) == 1 or FirstEpoch._has_warned or min(of_ranks) < _SHARE * _LEAST:
            return
        try:
            names = [name for dataset in self._uncut for name in file_readers.look_into(dataset).names]
        except Exception:  # of whatever makes the names: a warning must not end the training
            return
        total = sum(map(os.path.getsize, filter(os.path.exists, names)))
        if total >= _LEAST and min(of_ranks) >= _SHARE * total:
            FirstEpoch._has_warned = True
            warn(
                f"Every rank reads all of the training data: {len(names)} files of {total / 1e6:.0f} MB, and each of "
                f"{len(of_ranks)} ranks has read {min(of_ranks) / 1e6:.0f} MB or more in the first epoch. "
                'hvd.data.shard(dataset, by="file") lets each rank read its part of the files only.'
            )

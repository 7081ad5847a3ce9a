"""`keras.distribution.DataParallel`: which rows of arrays a rank trains on."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from smddp_tf.keras.roles import running
from tests.support.distributed_keras import (
    ROWS,
    Recording,
    arguments,
    distributed,
)

pytestmark = pytest.mark.ranks("2")


def test_all_ranks_shuffle_alike(hvd, mpi):
    """With shuffling, the ranks still take parts of the same batches; and each epoch has another order."""
    seen = [ids for kind in ("arrays", "PyDataset") for ids in _ids_of_epochs(kind)]
    together = [np.concatenate(of_epoch) for of_epoch in zip(*mpi.allgather(seen))]
    assert all(sorted(ids) == list(range(ROWS)) for ids in together)
    assert not np.array_equal(together[0], together[1])
    assert not np.array_equal(together[2], together[3])


def _ids_of_epochs(kind: str) -> list[np.ndarray]:
    """The numbers of the samples that this rank trains on, epoch by epoch."""
    ids = np.arange(ROWS, dtype=np.float32)[:, None]
    seen: list[list[np.ndarray]] = []

    def record(rows: np.ndarray) -> None:
        active = running.here.active
        seen[-1].append(rows if active is None else rows[: int(active.flag)])

    with distributed():
        begin = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append([]))
        Recording(record).fit(**arguments(kind, ids, ids), epochs=2, verbose=0, callbacks=[begin])
    return [np.concatenate(parts) for parts in seen]

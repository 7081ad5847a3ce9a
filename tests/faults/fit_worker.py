"""A rank of a `model.fit` that goes on until something happens.  python fit_worker.py FOLDER MANNER [RANK]

Manners: fit; raise (rank RANK in a callback, once FOLDER/go is there); save (rank 0 saves the model after every epoch
into FOLDER/disk); preempt (PreemptionCheckpoint into FOLDER/preempted).
"""

from __future__ import annotations

import os
import sys
import time

import keras
import numpy as np

import smddp_tf.keras as hvd
from tests.faults.notes import Notes

READY_AFTER = 3
ROWS, FEATURES, UNITS = 160, 64, 256


class Reporter(keras.callbacks.Callback):
    """Says when training is under way; raises if this rank is to."""

    def __init__(self) -> None:
        super().__init__()
        self._batches = 0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self._batches += 1
        time.sleep(0.02)
        if self._batches == READY_AFTER and manner != "save":
            note("ready", time.time())
        if manner == "raise" and rank == chosen and os.path.exists(f"{folder}/go"):
            note("acted", time.time())
            raise ValueError(f"rank {rank} has a bug")

    def on_epoch_end(self, epoch, logs=None) -> None:
        if manner == "save" and epoch == 1:
            note("ready", time.time())


def callbacks() -> list[keras.callbacks.Callback]:
    listed = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    if manner == "save":
        path = f"{folder}/disk/epoch-{{epoch}}.keras"
        listed.append(hvd.callbacks.on_rank_zero(keras.callbacks.ModelCheckpoint(path)))
    if manner == "preempt":
        listed.append(hvd.callbacks.PreemptionCheckpoint(f"{folder}/preempted"))
    return [*listed, Reporter()]


folder, manner = sys.argv[1:3]
chosen = int(sys.argv[3]) if len(sys.argv) > 3 else -1
hvd.init()
rank = hvd.rank()
note = Notes(folder, rank).write
model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(UNITS, "relu"), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mean_squared_error")
x = np.random.default_rng(rank).normal(size=(ROWS, FEATURES)).astype("float32")
try:
    model.fit(x, x[:, :1], batch_size=16, epochs=100_000, verbose=0, callbacks=callbacks())
except Exception as error:
    note("said", {"kind": type(error).__name__, "text": str(error), "at": time.time()})
    raise

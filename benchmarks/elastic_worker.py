"""The program of every rank of `benchmarks.elastic`; all but the module is the same for both libraries.

`python -m benchmarks.elastic_worker MODULE FOLDER BATCHES SECONDS`, of the standard library, NumPy and TensorFlow only:
it runs in Horovod's environment too. A batch takes SECONDS and has rows of small whole numbers, which the ranks share
out: sums are exact, so the weights at the end are those of `undisturbed`, however many ranks each batch had.
The state is not a TensorFlowState, for Horovod's broadcasts when it is made: a job that uses it ends when a host joins.
FOLDER/events gets a line for each event (see `note`). Once there is FOLDER/hurry, batches take no longer than they
have to.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.scripts.elastic_ranks import COMMIT_EVERY, WIDTH, rows_of, undisturbed

__all__ = ["main"]


def main(module: str, folder: Path, batches: int, seconds: float) -> None:
    """Trains; `module` is smddp_tf or horovod.tensorflow."""
    hvd = importlib.import_module(module)
    elastic = importlib.import_module(f"{module}.elastic")
    events = os.open(folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(what: str, batch: int) -> None:
        """Adds: nanoseconds of the monotonic clock, what, number of batches, rank, size."""
        os.write(events, f"{time.monotonic_ns()} {what} {batch} {hvd.rank()} {hvd.size()}\n".encode())

    hvd.init()
    state = elastic.ObjectState(hvd.broadcast_object, hvd.rank, batch=0, weights=np.zeros(WIDTH))

    @elastic.run
    def train(state: Any) -> None:
        first = state.batch
        while state.batch < batches:
            rows = tf.constant(rows_of(state.batch)[hvd.rank() :: hvd.size()].sum(axis=0))
            state.weights = state.weights + hvd.allreduce(rows, op=hvd.Sum, name="rows").numpy()
            state.batch += 1
            if state.batch == first + 1:
                note("trains", state.batch)
            if state.batch % COMMIT_EVERY == 0:
                state.commit()
                note("commit", state.batch)
            time.sleep(0 if (folder / "hurry").exists() else seconds)

    train(state)
    note("right" if np.array_equal(state.weights, undisturbed(batches)) else "wrong", state.batch)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))

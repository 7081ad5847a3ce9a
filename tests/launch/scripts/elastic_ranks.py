"""Training without TensorFlow that may be killed at any time.  python elastic_ranks.py FOLDER BATCHES [SECONDS]

Every batch has ROWS rows of small whole numbers, which the ranks share out. So the sum is exact, and the weights at the
end are those of `undisturbed`, however many ranks there were at each batch. What happens is written to FOLDER/log.PID,
a line at a time; ranks that have begun are FOLDER/rank.PID.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

ROWS, WIDTH = 60, 1000
COMMIT_EVERY = 3


def rows_of(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).integers(-9, 10, (ROWS, WIDTH)).astype(np.float64)


def undisturbed(batches: int) -> np.ndarray:
    return np.sum([rows_of(batch).sum(axis=0) for batch in range(batches)], axis=0)


def main(folder: Path, batches: int, seconds: float) -> None:
    import smddp_tf as hvd
    from smddp_tf._loader import core
    from smddp_tf.elastic import ObjectState, run

    log = os.open(folder / f"log.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(*words: object) -> None:
        os.write(log, (" ".join(map(str, words)) + "\n").encode())

    if os.environ.get("HOST_OF_RANK"):  # each rank on a host of its own
        os.environ["SMDDP_HOST_ID"] = "host" + os.environ["OMPI_COMM_WORLD_RANK"]
    hvd.init()
    state = ObjectState(batch=0, weights=np.zeros(WIDTH), scale=hvd.size())
    state.register_reset_callbacks([lambda: setattr(state, "scale", hvd.size())])

    @run
    def train(state: ObjectState) -> None:
        note("begin", state.batch, hvd.rank(), hvd.size(), hvd.local_rank(), state.scale)
        (folder / f"rank.{os.getpid()}").touch()
        while state.batch < batches:
            total = rows_of(state.batch)[hvd.rank() :: hvd.size()].sum(axis=0)
            core().allreduce([total], "float64", "rows", int(hvd.Sum))
            state.weights = state.weights + total
            state.batch += 1
            if state.batch % COMMIT_EVERY == 0:
                state.commit()
                note("commit", state.batch)
            time.sleep(seconds)

    train(state)
    equal = np.array_equal(state.weights, undisturbed(batches))
    note("end", state.batch, hvd.size(), "equal" if equal else "different")
    (folder / f"rank.{os.getpid()}").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)

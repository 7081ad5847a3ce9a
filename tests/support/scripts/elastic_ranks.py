"""Training without TensorFlow that may be killed at any time.  python elastic_ranks.py FOLDER BATCHES [SECONDS [DEATH]]

Every batch has ROWS rows of small whole numbers, which the ranks share out. So the sum is exact, and the weights at the
end are those of `undisturbed`, however many ranks there were at each batch. What happens is written to FOLDER/log.PID,
a line at a time, and with the time to FOLDER/order; ranks that have begun are FOLDER/rank.PID. With DEATH the last rank
kills itself after that batch, the first time, when the commit before is on the disk. Once there is FOLDER/hurry,
batches take no longer than they have to.
"""

from __future__ import annotations

import os
import signal
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


def is_last_before(batch: float, death: float) -> bool:
    """Whether the commit after this batch is the last one before the death: a job that starts again goes on from it."""
    return batch <= death < batch + COMMIT_EVERY


def die_once(folder: Path) -> None:
    try:
        os.close(os.open(folder / "died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, batches: int, seconds: float = 0.0, death: float = -1) -> None:
    import smddp_tf as hvd
    from smddp_tf.elastic import ObjectState, run
    from tests.native_module import core

    log = os.open(folder / f"log.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    order = os.open(folder / "order", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(*words: object) -> None:
        os.write(log, (" ".join(map(str, words)) + "\n").encode())
        os.write(order, f"{time.monotonic_ns():020} {words[0]} {words[1]}\n".encode())

    hvd.init()
    state = ObjectState(batch=0, weights=np.zeros(WIDTH))
    sizes = [hvd.size()]
    state.register_reset_callbacks([lambda: sizes.append(hvd.size())])

    @run
    def train(state: ObjectState) -> None:
        note("begin", state.batch, hvd.rank(), hvd.size(), hvd.local_rank(), sizes[-1])
        (folder / f"rank.{os.getpid()}").touch()
        while state.batch < batches:
            total = rows_of(state.batch)[hvd.rank() :: hvd.size()].sum(axis=0)
            core().allreduce([total], "float64", "rows", int(hvd.Sum))
            state.weights = state.weights + total
            state.batch += 1
            if state.batch % COMMIT_EVERY == 0:
                state.commit(wait=is_last_before(state.batch, death))
                note("commit", state.batch)
            if state.batch == death and hvd.rank() == hvd.size() - 1:
                die_once(folder)
            time.sleep(0 if (folder / "hurry").exists() else seconds)

    train(state)
    equal = np.array_equal(state.weights, undisturbed(batches))
    note("end", state.batch, hvd.size(), "equal" if equal else "different")
    (folder / f"rank.{os.getpid()}").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:]))

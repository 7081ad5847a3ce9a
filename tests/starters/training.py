"""What ranks do in these tests, and the same in one process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

STEPS, BATCH = 10, 12
SOON = 200.0  # seconds on a busy machine, less than ranks wait for others (SMDDP_START_TIMEOUT)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets: steps, rows of the batch, values."""
    x = np.random.default_rng(11).normal(size=(STEPS, BATCH, 5))
    return x, np.sin(x.sum(axis=2, keepdims=True))


def compiled(optimizer: Any) -> Any:
    import keras

    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(7, "tanh", dtype="float64"), keras.layers.Dense(1, dtype="float64")]
    model = keras.Sequential([keras.Input((5,), dtype="float64"), *layers])
    model.compile(optimizer, "mse")
    return model


def fit(model: Any, rank: int, size: int, **given: Any) -> Any:
    """Trains on this rank's rows of each batch."""
    mine = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    x, y = (each[:, mine].reshape(-1, each.shape[2]) for each in data())
    return model.fit(x, y, BATCH // size, epochs=2, shuffle=False, verbose=0, **given)


def alone() -> list[np.ndarray]:
    """The weights after training on whole batches in this process."""
    import keras

    model = compiled(keras.optimizers.SGD(0.02, 0.9))
    fit(model, 0, 1)
    return list(model.get_weights())


def train(folder: str = "", fails: int = -1, how: str = "") -> dict[str, Any]:
    """A rank: trains and returns what it is, its weights and its environment; `fails` is a rank that does not get far.

    Args:
        folder: for a file named after the rank, with the number of its process; "": none.
        fails: the rank that fails.
        how: "early" before `hvd.init`, "late" after it, "killed", "exits".
    """
    if folder:
        Path(folder, os.environ["RANK"]).write_text(str(os.getpid()))
    if how == "early" and os.environ["RANK"] == str(fails):
        raise ValueError(f"rank {fails} is broken")
    import keras

    import smddp_tf.keras as hvd

    hvd.init()
    model = compiled(hvd.DistributedOptimizer(keras.optimizers.SGD(0.02, 0.9)))
    if fails == hvd.rank():
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exits":
            raise SystemExit(7)
        raise ValueError(f"rank {fails} is broken")
    fit(model, hvd.rank(), hvd.size())
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return {
        "numbers": (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.mpi_enabled()),
        "weights": list(model.get_weights()),
        "variables": dict(os.environ),
        "told": any(os.environ["SMDDP_SECRET"] in line for line in lines),
    }


def check_trained(answers: list[dict[str, Any]], expected: list[np.ndarray]) -> None:
    """Two ranks of this host, without MPI, have trained as one process did."""
    assert [answer["numbers"] for answer in answers] == [(rank, 2, rank, 2, False) for rank in range(2)]
    for answer in answers:
        for found, wanted in zip(answer["weights"], expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert not answer["told"]
    secrets = {answer["variables"]["SMDDP_SECRET"] for answer in answers}
    assert len(secrets) == 1
    assert len(secrets.pop()) == 32


def check_ended(folder: Path, fails: int = 0) -> None:
    """The processes of the ranks are gone, within 10 s. Where one has failed early, the other may not have begun."""
    assert (folder / str(fails)).exists()
    pids = [int(file.read_text()) for file in folder.iterdir() if file.name in ("0", "1")]
    until = time.monotonic() + 10
    while alive := [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]:
        assert time.monotonic() < until, [psutil.Process(pid).cmdline() for pid in alive]
        time.sleep(0.1)


def read_parquet(folder: str) -> list[int]:
    """A rank: the numbers in its share of the files."""
    import numpy as np
    import pandas
    import tensorflow as tf

    import smddp_tf.keras as hvd

    hvd.init()
    files = np.array(sorted(tf.io.gfile.glob(f"{folder}/*.parquet")))
    mine = pandas.concat(map(pandas.read_parquet, hvd.data.shard(files, even=None)))
    return [int(value) for value in mine["id"]]

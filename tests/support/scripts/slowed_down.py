"""Trains on 2 ranks several times, each time with a fault, and records each training in a folder of its own.

Arguments: the folder for the recordings, then names of faults, those of a training joined by "+". `hvd` records. The
faults are real: processes that use all cores, a `map` that sleeps, a file that is read slowly, and so on. They are
larger than what a busy machine does to steps.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvd

STEPS, BATCH, WIDTH = 75, 32, 256
STEPS_OF = {"first": 20, "first+long": 100, "map": 50, "file": 50, "hog": 25}  # where fewer show it, or more are needed
PIECE = 320 << 10  # bytes of a file for each batch


class Sleeps(keras.callbacks.Callback):
    """Before steps, as a callback does that writes to a slow disk."""

    def __init__(self, seconds: float, every: int = 1, first: int = 0, last: int = 1000) -> None:
        super().__init__()
        self._seconds, self._steps = seconds, range(first, last, every)

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        if batch in self._steps:
            time.sleep(self._seconds)


def pieces(path: Path) -> Iterator[bytes]:
    """As from a storage of 8 MB/s."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            time.sleep(PIECE / 8e6)
            yield piece


def sleeping(features: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    def wait(given: tf.Tensor) -> tf.Tensor:
        time.sleep(0.04)
        return given

    features = tf.ensure_shape(tf.py_function(wait, [features], tf.float32), [BATCH, WIDTH])
    return features, target


def batches(faults: set[str], folder: Path, steps: int) -> tf.data.Dataset:
    draw = np.random.default_rng(hvd.rank())
    x, y = draw.random((BATCH, WIDTH), np.float32), draw.random((BATCH, 1), np.float32)
    options = tf.data.Options()
    options.autotune.enabled = False  # so that nothing is prepared ahead: else the ranks wait in turn
    dataset = tf.data.Dataset.from_tensors((x, y)).repeat(steps).with_options(options)
    if "map" in faults:
        dataset = dataset.map(sleeping)
    if "file" in faults:
        path = folder / f"data-{hvd.rank()}"
        path.write_bytes(bytes(PIECE * steps))
        read = tf.data.Dataset.from_generator(lambda: pieces(path), output_signature=tf.TensorSpec([], tf.string))
        dataset = tf.data.Dataset.zip(dataset, read).map(lambda element, _: element)
    return dataset


@contextlib.contextmanager
def busy_cores(wanted: bool) -> Iterator[None]:
    """Programs that are no child processes of this rank, two for each core, for a minute at most."""
    hog = "timeout 60 sh -c 'while :; do :; done' > /dev/null & echo $!"
    count = 2 * (os.cpu_count() or 1) if wanted else 0
    hogs = [int(subprocess.run(["sh", "-c", hog], stdout=subprocess.PIPE, check=True).stdout) for _ in range(count)]
    try:
        yield
    finally:
        for pid in hogs:
            os.kill(pid, signal.SIGTERM)


def train(model: keras.Model, name: str, folder: Path) -> None:
    faults = set(name.split("+"))
    late = 0.05 if "file" in faults else 0.1  # less, so that the share of the file is still large
    steps = {"rank": [Sleeps(late, first=30)] if hvd.rank() == 1 else [], "first": [Sleeps(1.0, last=1)]}
    steps["long"] = [Sleeps(1.0, every=50, first=20)] if hvd.rank() == 0 else []
    extra = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Sleeps(0.01)]  # as if on a GPU
    extra += [callback for fault in sorted(faults & set(steps)) for callback in steps[fault]]
    with busy_cores(hvd.rank() == 0 and "hog" in faults):
        data = batches(faults, folder, STEPS_OF.get(name, STEPS))
        model.fit(data, verbose=0, callbacks=[hvd.callbacks.Diagnose(folder), *extra])


def main(folder: Path, trainings: list[str]) -> None:
    hvd.init()
    model = keras.Sequential([keras.Input((WIDTH,)), *(keras.layers.Dense(WIDTH, "relu") for _ in range(4))])
    model.add(keras.layers.Dense(1))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse", jit_compile=False)
    for name in trainings:
        (folder / name).mkdir(exist_ok=True)
        train(model, name, folder / name)
    print(f"rank {hvd.rank()} has trained {len(trainings)} times")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

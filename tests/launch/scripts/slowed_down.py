"""Trains on 2 ranks several times, each time with a fault, and records each training in a folder of its own.

Arguments: the folder for the recordings, then names of faults, those of a training joined by "+". `hvd` records and the
faults are real: processes that use all cores, a `map` that sleeps, a file that is read slowly, and so on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvd
from smddp_tf import monitor

STEPS, BATCH, WIDTH = 250, 32, 256
PIECE = 128 << 10  # bytes of a file for each batch


class Sleeps(keras.callbacks.Callback):
    """Before steps, as a callback does that writes to a slow disk."""

    def __init__(self, seconds: float, every: int = 1, first: int = 0, last: int = STEPS) -> None:
        super().__init__()
        self._seconds, self._steps = seconds, range(first, last, every)

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        if batch in self._steps:
            time.sleep(self._seconds)


def pieces(path: Path) -> Iterator[bytes]:
    """As from a storage of 4 MB/s."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            time.sleep(PIECE / 4e6)
            yield piece


def sleeping(features: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    def wait(given: tf.Tensor) -> tf.Tensor:
        time.sleep(0.03)
        return given

    features = tf.ensure_shape(tf.py_function(wait, [features], tf.float32), [BATCH, WIDTH])
    return features, target


def batches(faults: set[str], folder: Path) -> tf.data.Dataset:
    draw = np.random.default_rng(hvd.rank())
    x, y = draw.random((BATCH, WIDTH), np.float32), draw.random((BATCH, 1), np.float32)
    dataset = tf.data.Dataset.from_tensors((x, y)).repeat(STEPS)
    if "map" in faults:
        dataset = dataset.map(sleeping)
    if "file" in faults:
        path = folder / f"data-{hvd.rank()}"
        path.write_bytes(bytes(PIECE * STEPS))
        read = tf.data.Dataset.from_generator(lambda: pieces(path), output_signature=tf.TensorSpec([], tf.string))
        dataset = tf.data.Dataset.zip(dataset, read).map(lambda element, _: element)
    return dataset


def train(faults: set[str], folder: Path) -> None:
    model = keras.Sequential([keras.Input((WIDTH,)), *(keras.layers.Dense(WIDTH, "relu") for _ in range(4))])
    model.add(keras.layers.Dense(1))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    sleeps = {
        "rank": [Sleeps(0.02, first=60)] if hvd.rank() == 1 else [],
        "first": [Sleeps(2.0, last=1)],
        "long": [Sleeps(0.4, every=50, first=20)] if hvd.rank() == 0 else [],
    }
    extra = [callback for fault in sorted(faults & set(sleeps)) for callback in sleeps[fault]]
    hogs = []
    if "hog" in faults and hvd.rank() == 0:
        command = [sys.executable, "-c", "while True: pass"]
        hogs = [subprocess.Popen(command) for _ in range(3 * (os.cpu_count() or 1))]
    monitor.start(folder / "recording")
    try:
        model.fit(batches(faults, folder), verbose=0, callbacks=extra)
    finally:
        monitor.stop()
        for hog in hogs:
            hog.kill()
            hog.wait()


def main(folder: Path, trainings: list[str]) -> None:
    hvd.init()
    for name in trainings:
        (folder / name).mkdir(exist_ok=True)
        train(set(name.split("+")), folder / name)
    print(f"rank {hvd.rank()} has trained {len(trainings)} times")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

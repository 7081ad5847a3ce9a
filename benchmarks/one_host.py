"""Does a second rank on the same host make `model.fit` faster? The same global batch in one process and on 2 ranks.

    python -m benchmarks.one_host [--repeats 3]

A process of TensorFlow uses all cores already, so what ranks can gain is what one process leaves idle. Two models: a
convolutional network, whose kernels use several cores well, and a network of small dense layers, whose do not. Prints
samples per second, the median of epochs after the first, by turns, and writes a JSON file to benchmarks/results.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
MODELS = ("convolutional", "dense")
SAMPLES, BATCH, EPOCHS = 4096, 64, 4


def train(kind: str) -> None:
    """One job's part: prints the seconds of each epoch but the first on rank 0."""
    import keras
    import numpy as np

    import smddp_tf.keras.distribution

    keras.distribution.initialize()
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    layers, draw = keras.layers, np.random.default_rng(0)
    if kind == "convolutional":
        x = draw.random((SAMPLES, 32, 32, 3), np.float32)
        parts = [layers.Conv2D(size, 3, activation="relu", strides=2) for size in (32, 64, 128)]
        model = keras.Sequential([keras.Input(x.shape[1:]), *parts, layers.Flatten(), layers.Dense(10)])
    else:
        x = draw.random((SAMPLES, 64), np.float32)
        parts = [layers.Dense(64, "relu") for _ in range(12)]
        model = keras.Sequential([keras.Input(x.shape[1:]), *parts, layers.Dense(10)])
    y = draw.integers(10, size=SAMPLES)
    model.compile(keras.optimizers.Adam(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ends = [0.0]
    noting = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[noting])
    if smddp_tf.rank() == 0:
        print("EPOCHS", json.dumps([later - earlier for earlier, later in zip(ends[1:], ends[2:])]), flush=True)


def samples_per_second(kind: str, ranks: int) -> float:
    """The median of one job's epochs."""
    launcher = ["-m", "smddp_tf.run", "--quiet", "-np", str(ranks), sys.executable]
    command = [sys.executable, *launcher, "-m", "benchmarks.one_host", "--train", kind]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    return SAMPLES / statistics.median(json.loads(printed.split("EPOCHS")[1].splitlines()[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--train", choices=MODELS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.train:
        train(asked.train)
        return
    found: dict[str, dict[str, float]] = {}
    for kind in MODELS:
        runs = [(samples_per_second(kind, 1), samples_per_second(kind, 2)) for _ in range(asked.repeats)]
        one, two = (statistics.median(each) for each in zip(*runs))
        found[kind] = {"samples/s, 1 process": one, "samples/s, 2 ranks": two, "ratio": two / one}
        print(
            f"{kind:14} 1 process {one:7.0f} samples/s   2 ranks {two:7.0f} samples/s   {two / one:.2f} times",
            flush=True,
        )
    now = datetime.datetime.now(datetime.timezone.utc)
    written = {"time": now.isoformat(), "cores": os.cpu_count(), "batch": BATCH, "models": found}
    path = RESULTS / f"{now:%Y-%m-%d-%H%M}-one-host.json"
    path.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()

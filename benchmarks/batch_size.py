"""Digits with eight times the batch: `python -m benchmarks.batch_size`, three minutes on two cores.

The base is one rank's batch. The others train in one process with eight times as many samples in a batch: what eight
ranks with the base's batch compute, to rounding. Writes results/...-batch-size.json, and docs/images/batch-size.svg.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import smddp_tf as hvd
from benchmarks.findings import machine, results_path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "batch-size.svg"
SEEDS, EPOCHS, TIMES, BATCH, WARMUP_EPOCHS, MOMENTUM = 5, 20, 8, 16, 5, 0.9
BASE = f"base: batch {BATCH}"
LARGE = f"batch {TIMES * BATCH}"


def rates(rate: float, epochs_of_steps: int) -> dict[str, tuple[int, Callable[[], Any]]]:
    """By the name of a curve: its batch, and its learning rate."""
    steps = WARMUP_EPOCHS * epochs_of_steps
    return {
        BASE: (BATCH, lambda: rate),
        f"{LARGE}, unscaled": (TIMES * BATCH, lambda: rate),
        f"{LARGE}, hvd.scaled": (TIMES * BATCH, lambda: hvd.scaled(rate, passes=TIMES)),
        f"{LARGE}, hvd.schedules.Warmup": (TIMES * BATCH, lambda: hvd.schedules.Warmup(rate, steps, passes=TIMES)),
    }


def train(digits: Any, seed: int, batch: int, rate: Callable[[], Any]) -> dict[str, list[float]]:
    """Loss and accuracy on the test images, after each epoch."""
    (x, y), test = digits.load()
    keras.utils.set_random_seed(seed)
    model = digits.build_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate(), momentum=MOMENTUM), loss=loss, metrics=["accuracy"])
    whole = len(x) - len(x) % (TIMES * BATCH)  # the same images for all curves
    history = model.fit(x[:whole], y[:whole], batch, EPOCHS, validation_data=test, verbose=0).history
    return {"loss": history["val_loss"], "accuracy": history["val_accuracy"]}


def plot(curves: dict[str, list[dict[str, list[float]]]], rate: float, path: Path) -> None:
    """Median over the seeds, with the area between the best and the worst."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "batch-size"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for name, seeds in curves.items():
        for axis, what in zip(axes, ("loss", "accuracy")):
            values = np.array([seed[what] for seed in seeds])
            epochs = np.arange(1, values.shape[1] + 1)
            [line] = axis.plot(epochs, np.median(values, axis=0), label=name, marker=".")
            axis.fill_between(epochs, values.min(axis=0), values.max(axis=0), alpha=0.15, color=line.get_color())
            axis.set(xlabel="epoch", ylabel=f"test {what}", xticks=range(0, EPOCHS + 1, 5))
            axis.grid(alpha=0.3)
    axes[0].set_yscale("log")
    axes[1].set_ylim(0.8, 1.0)
    axes[1].legend(loc="lower right")
    figure.suptitle(f"Digits, SGD with momentum {MOMENTUM}, rate {rate} for batch {BATCH}: median of {SEEDS} seeds")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=0.03, help="of the base")
    parser.add_argument("--plot", type=Path, help="draws this results file anew, and trains nothing")
    arguments = parser.parse_args()
    if arguments.plot:
        kept = json.loads(arguments.plot.read_text(encoding="utf-8"))
        return plot(kept["curves"], kept["rate"], PICTURE)
    sys.path.insert(0, str(ROOT / "examples"))
    import digits

    hvd.init()
    path = results_path("batch-size")
    curves: dict[str, list[dict[str, list[float]]]] = {}
    for name, (batch, rate) in rates(arguments.rate, 1436 // (TIMES * BATCH)).items():
        curves[name] = [train(digits, seed, batch, rate) for seed in range(SEEDS)]
        ends = {what: [round(one[what][-1], 4) for one in curves[name]] for what in ("loss", "accuracy")}
        print(name, ends, flush=True)
    about = {name: importlib.metadata.version(name) for name in ("smddp-tf", "tensorflow-cpu", "keras")}
    found = {"machine": machine(), "about": about, "rate": arguments.rate, "curves": curves}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    plot(curves, arguments.rate, PICTURE)
    print(path.relative_to(ROOT), PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()

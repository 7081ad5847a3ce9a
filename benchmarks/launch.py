"""How long a job takes to begin: `python -m benchmarks.launch` (2 minutes).

- The first step: from the start of the Python process to the end of the first step of training, on 2 ranks (import,
  `hvd.init`, tracing, and the first reduction; the slower rank counts) and in one process without smddp_tf, by turns.
- `smddprun -np N true`: a job that does nothing. (Open MPI's mpirun alone is not beside it: with 64 ranks of `true` it
  sometimes never ends.)

Prints medians beside the bars, and writes a JSON file to benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.findings import machine, results_path
from benchmarks.measure import duration_text
from benchmarks.ranks import environment_of_ranks

__all__ = ["Figure", "figures"]

FIRST_STEP_OVER_ONE, TWO_RANKS_SECONDS, MANY_RANKS_SECONDS, MANY = 1.15, 0.5, 2.0, 64
MARK = "FIRST STEP AFTER"


class Figure:
    """A figure beside its bar, which it must not exceed."""

    def __init__(self, what: str, value: float, bar: float, detail: str) -> None:
        self.what, self.value, self.bar, self.detail = what, value, bar, detail

    def __str__(self) -> str:
        mark = "pass" if self.value <= self.bar else "MISS"
        return f"{self.what:48} {self.value:6.3f}   at most {self.bar:<5g} {mark}   {self.detail}"


def figures(seconds: dict[str, list[float]]) -> list[Figure]:
    """The figures of a run.

    Args:
        seconds: of "first step, one process", "first step, 2 ranks" and "smddprun -np N true".
    """
    of = {name: statistics.median(times) for name, times in seconds.items()}
    one, two = of["first step, one process"], of["first step, 2 ranks"]
    times = f"{duration_text(two)}, one process without smddp_tf {duration_text(one)}"
    found = [Figure("first step on 2 ranks, over one process's", two / one, FIRST_STEP_OVER_ONE, times)]
    for ranks, bar in ((2, TWO_RANKS_SECONDS), (MANY, MANY_RANKS_SECONDS)):
        taken = of[f"smddprun -np {ranks} true"]
        found.append(Figure(f"smddprun -np {ranks} true, seconds", taken, bar, duration_text(taken)))
    return found


def first_step(plain: bool) -> None:
    """One process's part: a program as a user writes it, up to its first step."""
    import keras
    import numpy as np
    import tensorflow as tf

    if not plain:
        import smddp_tf as hvd

        hvd.init()
    model = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(256, "relu") for _ in range(3))])
    optimizer = keras.optimizers.SGD(1e-3)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        tape = tf.GradientTape()
        with tape if plain else hvd.DistributedGradientTape(tape) as recording:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        optimizer.apply(recording.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    step(tf.constant(np.random.default_rng(0).standard_normal((32, 64), np.float32))).numpy()
    print(f"{MARK} {seconds_since_start():.4f} s", flush=True)


def seconds_since_start() -> float:
    """Since the kernel has started this process."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def time_of(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, env=environment_of_ranks(), check=True, timeout=120, capture_output=True)
    return time.perf_counter() - begin


def first_step_of(command: list[str]) -> float:
    """Seconds of the slowest of the processes that the command runs."""
    printed = subprocess.run(
        command, env=environment_of_ranks(), check=True, timeout=120, capture_output=True, text=True
    ).stdout
    return max(float(line.split(MARK)[1].split()[0]) for line in printed.splitlines() if MARK in line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--first-step", choices=("plain", "reduced"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.first_step:
        first_step(asked.first_step == "plain")
        return
    program = [sys.executable, "-m", "benchmarks.launch", "--first-step"]
    launcher = [sys.executable, "-m", "smddp_tf.run", "--quiet", "-np"]
    runs: dict[str, Callable[[], float]] = {
        "first step, one process": lambda: first_step_of([*program, "plain"]),
        "first step, 2 ranks": lambda: first_step_of([*launcher, "2", *program, "reduced"]),
    }
    for ranks in (2, MANY):
        runs[f"smddprun -np {ranks} true"] = lambda ranks=ranks: time_of([*launcher, str(ranks), "true"])
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(asked.repeats + 1):  # the first fills the caches
        for name, run in runs.items():
            taken = run()
            seconds[name] += [taken] if turn else []
    print(*figures(seconds), sep="\n")
    path = results_path("launch")
    path.write_text(json.dumps({"machine": machine(), "seconds": seconds}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")


if __name__ == "__main__":
    main()

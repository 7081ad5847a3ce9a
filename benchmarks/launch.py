"""How long a job takes to begin: `python -m benchmarks.launch` (2 minutes), a part of `make bench`.

- The first step: from the start of the Python process to the end of the first step of training, on 2 ranks (import,
  `hvd.init`, tracing, and the first reduction; the slower rank counts), in one process without smddp_tf, and in two of
  these that begin at the same time and do not talk to each other: what the machine takes for two.
- `smddprun -np N true`: a job that does nothing. (Open MPI's mpirun alone is not beside it: with 64 ranks of `true` it
  sometimes never ends.)

Prints medians beside the bars, and writes a JSON file to benchmarks/results.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.findings import Findings, machine, results_path
from benchmarks.ranks import environment_of_ranks
from benchmarks.report import console_of, finish
from benchmarks.targets import MANY, ONE_PROCESS, TWO_PROCESSES, TWO_RANKS, of_nothing

__all__ = ["measure_launch"]

MARK = "FIRST STEP AFTER"


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


def printed_by(command: list[str]) -> str:
    """Runs a command to its end. It is killed after two minutes."""
    environment = environment_of_ranks()
    return subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True, text=True).stdout


def time_of(command: list[str]) -> float:
    begin = time.perf_counter()
    printed_by(command)
    return time.perf_counter() - begin


def first_step_of(*commands: list[str]) -> float:
    """Seconds of the slowest of the processes that the commands run, all at the same time."""
    with ThreadPoolExecutor(len(commands)) as pool:
        lines = "".join(pool.map(printed_by, commands)).splitlines()
    return max(float(line.split(MARK)[1].split()[0]) for line in lines if MARK in line)


def measure_launch(repeats: int, say: Callable[[str], None], findings: Findings) -> None:
    """Measures all starts by turns."""
    say("launch: first steps, and jobs that do nothing")
    program = [sys.executable, "-m", "benchmarks.launch", "--first-step"]
    launcher = [sys.executable, "-m", "smddp_tf.run", "--quiet", "-np"]
    runs: dict[str, Callable[[], float]] = {
        ONE_PROCESS: lambda: first_step_of([*program, "plain"]),
        TWO_PROCESSES: lambda: first_step_of([*program, "plain"], [*program, "plain"]),
        TWO_RANKS: lambda: first_step_of([*launcher, "2", *program, "reduced"]),
    }
    for ranks in (2, MANY):
        runs[of_nothing(ranks)] = lambda ranks=ranks: time_of([*launcher, str(ranks), "true"])
    findings.launch = {name: [] for name in runs}
    for turn in range(repeats + 1):  # the first fills the caches
        for name, run in runs.items():
            taken = run()
            findings.launch[name] += [taken] if turn else []


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--first-step", choices=("plain", "reduced"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.first_step:
        first_step(asked.first_step == "plain")
        return
    findings, path = Findings(machine=machine()), results_path("launch")
    measure_launch(asked.repeats, print, findings)
    finish(findings, path, console_of(150))


if __name__ == "__main__":
    main()

"""What commits cost a training step: `python -m benchmarks.commits [--milliseconds 200]`.

Two ranks of a job that goes on without ranks that it loses. A step waits, as for a device, and writes the whole state
of the model anew, as an optimizer does. Without commits, with one after each step in memory, and with one after each
tenth in a folder; the optimizer's state whole on each rank, and partitioned, where a commit sends this rank's part to
the other one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.peers import ROOT

__all__ = ["main"]

STEPS, FIRST = 43, 3  # the first ones trace
# What a row measures: (the argument `partition_state`, steps between commits, whether they go to a folder).
ROWS = [(None, 0, False), (None, 1, False), (None, 10, True), ("world", 0, False), ("world", 1, False)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits", description=__doc__)
    parser.add_argument("--milliseconds", type=float, default=200.0, help="that a step waits")
    options = parser.parse_args()
    table = Table("optimizer's state", "commits", "MB of a rank", "step ms", "commit ms", "most", "a plain copy ms")
    for partition, every, to_folder in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            launcher = ["-m", "smddp_tf.run", "--no-mpi", "--elastic", "--min-np", "1", "-np", "2", "--commit-dir"]
            leave_out = [] if to_folder else ["env", "-u", "SMDDP_COMMIT_DIR"]
            words = [sys.executable, "-m", "benchmarks.commits", "rank", partition or "-", every, options.milliseconds]
            line = [sys.executable, *launcher, f"{folder}/commits", *leave_out, *words, f"{folder}/found.json"]
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
            subprocess.run(
                list(map(str, line)), check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            found = json.loads(Path(folder, "found.json").read_text(encoding="utf-8"))
        which = f"each {every}" + (", to a folder" if to_folder else "") if every else "none"
        table.add_row(partition or "whole", which, *(f"{value:.1f}" for value in found))
    Console().print(table)


def rank(partition: str, every: int, milliseconds: float, path: str) -> None:
    """Rank 0 writes: MB, medians of step and commit, the longest commit, and of copying everything once, in ms."""
    import keras
    import numpy as np
    import tensorflow as tf

    import smddp_tf.keras as hvd
    from smddp_tf import elastic

    hvd.init()
    layers = [keras.layers.Dense(2048) for _ in range(6)]
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
    partition_state = None if partition == "-" else partition
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(), partition_state=partition_state), loss="mse")
    state = elastic.TensorFlowKerasState(model, batch=0)
    everything = [each for each in (*model.variables, *model.optimizer.variables) if len(each.shape)]

    @tf.function
    def rewrite() -> None:
        for variable in everything:
            variable.assign(variable + 0.0)

    @elastic.run
    def train(state: elastic.TensorFlowKerasState) -> None:
        steps, commits = [], []
        for number in range(STEPS):
            begun = time.perf_counter()
            rewrite()
            time.sleep(milliseconds / 1000)
            if every and number % every == 0:
                before = time.perf_counter()
                state.commit()
                commits.append(time.perf_counter() - before)
            steps.append(time.perf_counter() - begun)
        state.finish_commit()
        copies = []
        for _ in range(3):
            begun = time.perf_counter()
            kept = [np.asarray(each).copy() for each in everything]
            copies.append(time.perf_counter() - begun)
        megabytes = sum(each.nbytes for each in kept) / 1e6
        last = commits[1:] or [0.0]
        seconds = [statistics.median(steps[FIRST:]), statistics.median(last), max(last), min(copies)]
        if hvd.rank() == 0:
            Path(path).write_text(json.dumps([megabytes, *(1e3 * each for each in seconds)]), encoding="utf-8")

    train(state)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
    else:
        main()

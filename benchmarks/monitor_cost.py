"""What recording costs: `fit` with steps of about 5 ms, with and without a recording, in turns.

`python -m benchmarks.monitor_cost [--runs 21] [--steps 100]` runs alone; under mpirun every rank records, and rank 0
prints its times. Both kinds of steps are measured: `wait` sleeps 5 ms in the step, as a GPU's steps look to the host,
`compute` multiplies matrices on the cores. An epoch without and one with a recording follow each other. The figures are
medians over the runs, with quartiles: of the difference of the epochs' typical steps, and of the processor time that
all threads of the process take more per step, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import smddp_tf as hvd

SECONDS = 0.005
PART = 10  # steps
WIDTH = 256


class Work(keras.layers.Layer):
    """Takes about 5 ms, by waiting or by multiplying `rounds` times."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def call(self, x: Any) -> Any:
        if not self.rounds:
            waited = tf.py_function(lambda: (time.sleep(SECONDS), 0.0)[1], [], tf.float32)
            return x + tf.ensure_shape(waited, [])
        square = tf.eye(WIDTH) + 1e-3 * tf.reduce_mean(x)
        for _ in range(self.rounds):
            square = tf.matmul(square, square) / WIDTH
        return x + tf.stop_gradient(tf.reduce_mean(square))


def rounds_for_work() -> int:
    """How many multiplications take 5 ms here; the same number on all ranks."""
    square = tf.eye(WIDTH)
    multiply = tf.function(lambda x: tf.matmul(x, x))
    multiply(square)
    times = []
    for _ in range(50):
        began = time.perf_counter()
        multiply(square)
        times.append(time.perf_counter() - began)
    return int(hvd.broadcast_object(max(1, round(SECONDS / float(np.median(times))))))


class Clock(keras.callbacks.Callback):
    """When each step begins."""

    async_safe = True

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.times.append(time.perf_counter())


def seconds_per_step(model: Any, data: Any, steps: int) -> tuple[float, float]:
    """Of the clock, as the median part of the epoch has it: recording does not do the same in each; of processors."""
    clock, before = Clock(), time.process_time()
    model.fit(data, epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[clock])
    return float(np.median(np.diff(clock.times[::PART]))) / PART, (time.process_time() - before) / steps


def compare(rounds: int, runs: int, steps: int) -> np.ndarray:
    """Seconds per step: for each run, without and with recording, those of the clock and of the processors."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((16,)), Work(rounds), keras.layers.Dense(16), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3)), "mse", jit_compile=False)
    x = np.random.default_rng(hvd.rank()).normal(size=(32, 16)).astype("float32")
    data = tf.data.Dataset.from_tensors((x, x[:, :1])).repeat().prefetch(2)
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for run in range(runs + 2):
            pair = []
            for records in (False, True) if run % 2 else (True, False):
                if records:
                    hvd.monitor.start(folder)
                pair.append((records, seconds_per_step(model, data, steps)))
                hvd.monitor.stop()
            times.append([seconds for _, seconds in sorted(pair)])
    return np.array(times[2:])  # the first ones trace


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=41)
    parser.add_argument("--steps", type=int, default=100)
    chosen = parser.parse_args()
    hvd.init()
    for kind, rounds in (("wait", 0), ("compute", rounds_for_work())):
        times = compare(rounds, chosen.runs, chosen.steps)
        without = float(np.median(times[:, 0, 0]))
        wall, cpu = np.percentile(1e6 * (times[:, 1] - times[:, 0]), [50, 25, 75], axis=0).T
        if hvd.rank() == 0:
            print(f"{kind}: {1e3 * without:.2f} ms a step; recording adds {_quartiles(wall)} us of time", end="")
            print(f" ({1e-6 * wall[0] / without:.2%}) and {_quartiles(cpu)} us of processor time")


def _quartiles(of: Any) -> str:
    return f"{of[0]:.0f} ({of[1]:.0f} to {of[2]:.0f})"


if __name__ == "__main__":
    main()

"""What SMDDP_VERIFY=1 costs: allreduces of arrays, and training steps, with it and without.

`python -m benchmarks.verify [--ranks 2]` prints a table; it starts its ranks itself. The variable is read by `init`, so
sessions with it and without take turns. An allreduce is timed in place, in NumPy, on the slowest rank; every result is
exact, and checked once a session. The step is a dense network of 3 million parameters in float32, compiled by
`tf.function`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Timing, duration_text, slowest_rank
from benchmarks.ranks import measure_on_ranks

__all__ = ["main"]

KIB = 1024
BYTES = (KIB, 64 * KIB, 1024 * KIB, 16 * 1024 * KIB, 64 * 1024 * KIB)
SESSIONS = 4  # of each kind
REPETITIONS = 7
RUN_SECONDS = 300


def timed(run: Callable[[], Any]) -> list[float]:
    """Seconds of each repetition, after one that is not counted."""
    import smddp_tf as hvd

    seconds = []
    run()
    for _ in range(REPETITIONS):
        hvd.barrier(name="bench.verify")
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return seconds


def array_case(size: int) -> dict[str, Any]:
    """Sums an array of `size` bytes of float32."""
    import smddp_tf as hvd
    from tests.native_module import core

    array = np.empty(size // 4, np.float32)

    def run() -> None:
        core().allreduce([array], "float32", f"bench.verify.{size}", int(hvd.Sum))

    array[:] = np.arange(array.size) % 251 + hvd.rank()
    expected = (np.arange(array.size) % 251) * hvd.size() + sum(range(hvd.size()))
    run()
    wrong = int(np.count_nonzero(array != expected))
    array[:] = 0
    return {"case": f"{size // KIB} KiB", "wrong": wrong, "seconds": timed(run)}


def step_case() -> dict[str, Any]:
    """A training step whose gradients are a plan."""
    import keras
    import tensorflow as tf

    import smddp_tf.keras as hvd

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((512,))] + [keras.layers.Dense(512, "relu") for _ in range(12)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3))
    optimizer.build(model.trainable_variables)
    batch = tf.random.stateless_normal((64, 512), (hvd.rank(), 1))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return {"case": "training step", "wrong": 0, "seconds": timed(lambda: step().numpy())}


def work(folder: Path) -> None:
    """The program of one rank."""
    import smddp_tf as hvd

    answers = []
    for session in range(2 * SESSIONS):
        os.environ["SMDDP_VERIFY"] = str(session % 2)
        hvd.init()
        for case in [*map(array_case, BYTES), step_case()]:
            answers.append({"verify": session % 2, **case})
        name = hvd.rank()
        hvd.shutdown()
    (folder / f"{name}.json").write_text(json.dumps(answers), encoding="utf-8")


def show(of_ranks: list[list[dict[str, Any]]]) -> int:
    """Prints the table; returns the number of wrong elements."""
    seconds: dict[str, tuple[list[float], list[float]]] = {}
    for cases in zip(*of_ranks):
        both = seconds.setdefault(cases[0]["case"], ([], []))
        both[cases[0]["verify"]].extend(slowest_rank([case["seconds"] for case in cases]))
    wrong = sum(case["wrong"] for cases in of_ranks for case in cases)
    print(f"{len(of_ranks)} ranks; medians of {SESSIONS} x {REPETITIONS}, slowest rank; {wrong} wrong elements")
    print("".join(f"{head:>16}" for head in ("", "off", "SMDDP_VERIFY=1", "ratio")))
    for name, (without, with_it) in seconds.items():
        off, on = Timing.of(without).median, Timing.of(with_it).median
        print("".join(f"{cell:>16}" for cell in (name, duration_text(off), duration_text(on), f"{on / off:.2f}")))
    return wrong


def main() -> None:
    """Starts the ranks and shows what they measured; is itself the program of a rank."""
    measure_on_ranks("benchmarks.verify", __doc__.splitlines()[0], RUN_SECONDS, work, show)


if __name__ == "__main__":
    main()

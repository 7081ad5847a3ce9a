"""A training step compiled by XLA against the same step without: `python -m benchmarks.jit`, half a minute.

Each model's step is timed on two ranks of this machine, plain and with `jit_compile=True`, with and without the
reduction over the ranks, in turns; the slowest rank counts. Before that, all four must have made the same weights
(without the reduction, the same as each other). The difference between the columns "alone" and "reduced" is what the
reduction costs: in a plain step a part of it hides behind the backward pass, in a compiled step it has to wait for all
gradients.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import slowest_rank, three_digits
from benchmarks.ranks import answers_of_ranks

__all__ = ["main"]

RANKS = 2
TURNS = 11
RUN_SECONDS = 240
# Models and the batch of each rank; the first is all overhead, the second overlap.py's.
CASES = {"small": 16, "MLP": 64}


def small() -> Any:
    import keras

    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)])


def step_of(model: Any, batch: int, jit: bool, reduced: bool) -> Callable[[], Any]:
    """A step of SGD with momentum on this rank's batch, which is the same in every step."""
    import keras
    import numpy as np
    import tensorflow as tf

    import smddp_tf as hvd

    variables = model.trainable_variables
    optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
    optimizer.build(variables)
    shape = (batch, *model.input_shape[1:])
    x = tf.constant(np.random.default_rng(hvd.rank()).standard_normal(shape, np.float32))

    @tf.function(jit_compile=jit)
    def step():
        tape = tf.GradientTape()
        with hvd.DistributedGradientTape(tape) if reduced else tape as recording:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        optimizer.apply(recording.gradient(loss, variables), variables)
        return loss

    return step


def measure(name: str, batch: int) -> dict[str, Any]:
    """Seconds of this rank's steps, and how far the weights of plain and compiled steps are apart."""
    import keras
    import numpy as np

    from benchmarks.overlap import MODELS
    from tests.native_module import core

    steps, weights = {}, {}
    for jit in (False, True):
        for reduced in (False, True):
            keras.utils.set_random_seed(1)
            model = {"small": small, **MODELS}[name]()
            step = step_of(model, batch, jit, reduced)
            for _ in range(3):
                step()
            weights[jit, reduced] = np.concatenate([np.ravel(weight) for weight in model.get_weights()])
            steps[jit, reduced] = step
    apart = [
        float(
            np.linalg.norm(weights[True, reduced] - weights[False, reduced]) / np.linalg.norm(weights[False, reduced])
        )
        for reduced in (False, True)
    ]
    seconds: dict[str, list[float]] = {_label(*key): [] for key in steps}
    for _ in range(TURNS):
        for key, step in steps.items():
            core().barrier("bench.jit")
            begin = time.perf_counter()
            step().numpy()
            seconds[_label(*key)].append(time.perf_counter() - begin)
    return {"seconds": seconds, "apart": max(apart)}


def _label(jit: bool, reduced: bool) -> str:
    return f"{'compiled' if jit else 'plain'}, {'reduced' if reduced else 'alone'}"


def run_rank(file: Path) -> None:
    import smddp_tf as hvd

    hvd.init()
    answer = {name: measure(name, batch) for name, batch in CASES.items()}
    (file / f"{hvd.rank()}.json").write_text(json.dumps(answer), encoding="utf-8")


def main() -> None:
    """Ends with exit code 1 when compiled and plain steps made different weights."""
    from rich.console import Console
    from rich.table import Table

    answers = answers_of_ranks("benchmarks.jit", RANKS, RUN_SECONDS, "{folder}")
    columns = list(answers[0]["small"]["seconds"])
    table = Table(title=f"a training step on {RANKS} ranks of one node: median ms")
    for heading in ("model", "batch", *columns, "compiled / plain", "weights apart"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    worst = 0.0
    for name, batch in CASES.items():
        medians = {
            column: statistics.median(slowest_rank([answer[name]["seconds"][column] for answer in answers]))
            for column in columns
        }
        apart = max(answer[name]["apart"] for answer in answers)
        worst = max(worst, apart)
        ratio = medians[_label(True, True)] / medians[_label(False, True)]
        cells = [three_digits(1e3 * medians[column]) for column in columns]
        table.add_row(name, str(batch), *cells, f"{ratio:.2f}", f"{apart:.0e}")
    Console(width=130 if not sys.stdout.isatty() else None).print(table)
    if worst > 1e-5:
        sys.exit("compiled and plain steps made different weights")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_rank(Path(sys.argv[1]))
    else:
        main()

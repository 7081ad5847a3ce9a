"""One rank of a job whose computation waits: `python -m benchmarks.scaling_worker LIBRARY OPS FOLDER STEP`.

STEP says what the step of a model is: elements of each gradient and when it is there, see `scaling.measure`, and
whether XLA compiles it. Two things are timed: training steps through the tape of the
library; and the same with gradients that are all there at once, which is the communication alone. Writes
FOLDER/<rank>.json.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

__all__ = ["Step", "main"]

Backward = Callable[[tf.Tensor], list[tf.Tensor]]

WARM_UP = 2


class Step:
    """A training step of waiting computation and the reduction of its gradients.

    Gradient i of rank r holds (r + 1) * (i % 7 + 1) + its place modulo 5, so that a sum of the wrong gradients shows.
    """

    def __init__(self, hvd: Any, ops: Any, work: dict[str, Any]) -> None:
        self._hvd, self._ops, self._work = hvd, ops, work
        self._weights = [tf.Variable(self._values(place, hvd.rank())) for place in range(len(work["elements"]))]
        compiled = work["compiled"]
        self._model = self._compiled_model if compiled else self._plain_model
        self.run = tf.function(self._step, jit_compile=compiled)

    def _values(self, place: int, rank: float) -> np.ndarray:
        at = np.arange(self._work["elements"][place], dtype=np.float32)
        return (rank + 1) * (place % 7 + 1) + at % 5

    def _step(self, scale: tf.Tensor) -> list[tf.Tensor]:
        """Reduced gradients; `scale` (float64, a scalar) multiplies all waits."""

        @tf.custom_gradient
        def model(*weights):
            return self._model(scale, weights)

        with self._hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = model(*(weight.read_value() for weight in self._weights))
        return tape.gradient(loss, self._weights)

    def _plain_model(self, scale: tf.Tensor, weights: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Backward]:
        start = self._ops.smddp_bench_clock()

        def ready(value, offset):
            return self._ops.smddp_bench_ready(value, start, scale, offset=offset)

        def backward(_):
            return [ready(weight, at) for weight, at in zip(weights, self._work["ready"])]

        return ready(tf.constant(0.0), self._work["forward"]), backward

    def _compiled_model(self, scale: tf.Tensor, weights: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Backward]:
        factor = tf.cast(scale, tf.float32)

        def after(before, value, seconds):
            return gen_xla_ops.xla_custom_call_v2(
                operands=[factor, before, value],
                call_target_name="smddp_bench_wait",
                backend_config=f"{seconds} {4 * value.shape.num_elements()}",
                has_side_effect=False,
                result_dtypes=[tf.float32, tf.float32],
                result_shapes=[[], value.shape],
            )

        loss, moment = after(tf.constant(0.0), tf.constant(0.0), self._work["forward"])[0], self._work["forward"]

        def backward(_):
            before, now, gradients = loss, moment, {}
            for at, place in sorted((at, place) for place, at in enumerate(self._work["ready"])):
                before, gradients[place] = after(before, weights[place], at - now)
                now = at
            return [gradients[place] for place in range(len(weights))]

        return loss, backward

    def seconds(self, scale: float, repetitions: int) -> list[float]:
        """Of steps one after the other, each up to its last gradient."""
        seconds = []
        for _ in range(WARM_UP + repetitions):
            start = time.perf_counter()
            self.run(tf.constant(scale, tf.float64))[0].numpy()
            seconds.append(time.perf_counter() - start)
        return seconds[WARM_UP:]

    def wrong(self) -> int:
        """Elements of one step's results that are not the mean over the ranks."""
        mean_rank = (self._hvd.size() - 1) / 2
        results = self.run(tf.constant(0.0, tf.float64))
        return sum(
            int(np.sum(np.abs(result.numpy() - self._values(place, mean_rank)) > 1e-4))
            for place, result in enumerate(results)
        )


def main() -> None:
    """Times the steps of one model."""
    library, ops, folder, work = *sys.argv[1:3], Path(sys.argv[3]), json.loads(sys.argv[4])
    hvd = importlib.import_module(library)
    hvd.init()
    step = Step(hvd, ctypes.CDLL(ops) if work["compiled"] else tf.load_op_library(ops), work)
    together = step.seconds(1.0, work["repetitions"])  # first: the order of its gradients decides about buckets
    answer = {"wrong": step.wrong(), "together": together}
    answer["communication"] = step.seconds(0.0, work["repetitions"])
    (folder / f"{os.environ['OMPI_COMM_WORLD_RANK']}.json").write_text(json.dumps(answer), encoding="utf-8")
    hvd.shutdown()


if __name__ == "__main__":
    main()

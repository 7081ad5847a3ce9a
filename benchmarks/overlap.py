"""Shows that reduction runs beside the backward pass: `mpirun -np 2 python -m benchmarks.overlap`.

A stack of Dense layers is trained in a `tf.function`. The engine's diary says when each gradient was ready and when
each bucket had been reduced; what was reduced before the last gradient was ready cost the step nothing.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import keras
import tensorflow as tf

import smddp_tf as hvd
from smddp_tf._loader import core

__all__ = ["StepDiary", "diary_of_step", "make_step"]


@dataclass(frozen=True)
class StepDiary:
    """One training step, in milliseconds after its first gradient was ready."""

    last_gradient_ms: float
    bucket_done_ms: list[float]

    @property
    def reduced_before_last_gradient(self) -> int:
        return sum(done < self.last_gradient_ms for done in self.bucket_done_ms)


def make_step(layers: int, width: int, batch: int):
    """A compiled training step over `layers` Dense layers, without arguments."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((width,)), *[keras.layers.Dense(width) for _ in range(layers)]])
    optimizer = keras.optimizers.SGD(1e-6)
    optimizer.build(model.trainable_variables)
    x = tf.random.normal((batch, width), seed=hvd.rank())

    @tf.function(jit_compile=False)
    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step


def diary_of_step(step) -> StepDiary:
    """Runs `step` once and reads the engine's diary. Events carry CLOCK_MONOTONIC times of this rank."""
    core().trace_start()
    step()
    events = core().trace_stop()
    ready = [event["time_ns"] for event in events if event["what"] == "tensor_ready"]
    done = [event["time_ns"] for event in events if event["what"] == "bucket_done"]
    first = min(ready)
    return StepDiary((max(ready) - first) / 1e6, sorted((time - first) / 1e6 for time in done))


def main() -> None:
    """Prints the diary of the median step on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=9)
    options = parser.parse_args()
    hvd.init()
    step = make_step(options.layers, options.width, options.batch)
    step()
    diaries = sorted((diary_of_step(step) for _ in range(options.steps)), key=lambda diary: diary.last_gradient_ms)
    diary = diaries[len(diaries) // 2]
    if hvd.rank() == 0:
        buckets = ", ".join(f"{time:.1f}" for time in diary.bucket_done_ms)
        print(f"{options.layers} x Dense({options.width}), batch {options.batch}, {hvd.size()} ranks; median step:")
        print(f"  last gradient ready after  {diary.last_gradient_ms:.1f} ms (counted from the first)")
        print(f"  buckets reduced after      {buckets} ms")
        print(f"  {diary.reduced_before_last_gradient} of {len(diary.bucket_done_ms)} buckets before the last gradient")


if __name__ == "__main__":
    main()

"""A training step on one rank of many: how much of the communication hides behind the computation.

`python -m benchmarks.overlap RANKS FOLDER MODELS` under mpirun; the orchestrator (`steps`) starts it, on one node or in
the lab. Every rank writes what it measured to FOLDER/<rank>.json. Three things are timed, in turns:

- compute: forward, backward and update, without any reduction; all ranks compute at the same time;
- communication: the reduction of the same gradients, when all of them are there;
- together: the training step with `hvd.DistributedGradientTape`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import smddp_tf as hvd
from smddp_tf.gradients.reducer import GradientReducer
from tests.native_module import core

__all__ = ["MODELS", "Step", "main"]

TURNS = 5
PROBE_BATCH = 32
# The batch is chosen so that computing takes this many times as long as communicating.
COMPUTE_OVER_COMMUNICATION = 1.5


def mlp() -> keras.Model:
    """Twelve equal Dense layers: 6.5 million parameters, 26 MB of gradients."""
    layers = [keras.layers.Dense(736, activation="relu") for _ in range(12)]
    return keras.Sequential([keras.Input((736,)), *layers])


def transformer() -> keras.Model:
    """Four blocks of attention over 32 positions of width 384: 7.1 million parameters, 28 MB of gradients."""
    width = 384
    inputs = keras.Input((32, width))
    x = inputs
    for _ in range(4):
        attended = keras.layers.MultiHeadAttention(num_heads=4, key_dim=width // 4)(x, x)
        x = keras.layers.LayerNormalization()(x + attended)
        inner = keras.layers.Dense(4 * width, activation="relu")(x)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(width)(inner))
    return keras.Model(inputs, x)


MODELS = {"MLP": mlp, "transformer": transformer}


class Step:
    """The three candidates for one model and batch."""

    def __init__(self, name: str, batch: int) -> None:
        keras.utils.set_random_seed(1)
        self._name = f"{name}.{batch}"
        self._model = MODELS[name]()
        self._optimizer = keras.optimizers.SGD(1e-6)
        self._optimizer.build(self._model.trainable_variables)
        shape = (batch, *self._model.input_shape[1:])
        self._x = tf.constant(np.random.default_rng(hvd.rank()).standard_normal(shape, np.float32))
        self.compute = self._step(reduced=False)
        self.together = self._step(reduced=True)
        self.communicate = self._communication()

    @property
    def gradient_bytes(self) -> int:
        return sum(4 * int(np.prod(variable.shape)) for variable in self._model.trainable_variables)

    def _step(self, reduced: bool) -> Callable[[], Any]:
        variables = self._model.trainable_variables

        @tf.function(jit_compile=False)
        def step():
            tape = tf.GradientTape()
            with hvd.DistributedGradientTape(tape) if reduced else tape as recording:
                loss = tf.reduce_mean(self._model(self._x, training=True) ** 2)
            self._optimizer.apply(recording.gradient(loss, variables), variables)
            return loss

        return step

    def _communication(self) -> Callable[[], Any]:
        gradients = [tf.Variable(tf.ones(variable.shape)) for variable in self._model.trainable_variables]
        reducer = GradientReducer(f"bench.step.{self._name}")

        @tf.function(jit_compile=False)
        def communicate():
            return reducer([gradient.read_value() for gradient in gradients], gradients)

        return communicate


def seconds_of(run: Callable[[], Any]) -> float:
    """One run that all ranks begin together, up to its result."""
    core().barrier("bench.step")
    start = time.perf_counter()
    tf.nest.map_structure(lambda tensor: tensor.numpy() if tensor.shape.rank == 0 else None, run())
    return time.perf_counter() - start


def balanced_batch(name: str) -> int:
    """The batch at which computing takes longer than communicating by that factor; the same on all ranks."""
    batch = PROBE_BATCH
    communication = 0.0
    for _ in range(2):  # small batches say little about large ones
        probe = Step(name, batch)
        communication = communication or quickest(probe.communicate)
        wanted = batch * COMPUTE_OVER_COMMUNICATION * communication / quickest(probe.compute)
        mean = float(hvd.allreduce(tf.constant(wanted), name=f"bench.batch.{name}"))
        batch = max(8, min(4096, 8 * round(mean / 8)))
    return batch


def quickest(run: Callable[[], Any]) -> float:
    """Seconds of the best of two runs, after one that is not counted."""
    seconds_of(run)
    return min(seconds_of(run) for _ in range(2))


def measure(name: str) -> dict[str, Any]:
    """Times the three in turns, on this rank."""
    batch = balanced_batch(name)
    step = Step(name, batch)
    runs = {"compute": step.compute, "communication": step.communicate, "together": step.together}
    for run in runs.values():
        seconds_of(run)
    seconds: dict[str, list[float]] = {what: [] for what in runs}
    busy: dict[str, list[float]] = {what: [] for what in runs}
    for _ in range(TURNS):
        for what, run in runs.items():
            before = core_seconds()
            seconds[what].append(seconds_of(run))
            busy[what].append(core_seconds() - before)
    return {"model": name, "batch": batch, "gradient_bytes": step.gradient_bytes, "seconds": seconds, "busy": busy}


def core_seconds() -> float:
    """What all cores of the machine have worked so far, for whomever: the kernel's and the lab's switches included."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _iowait, interrupts, soft_interrupts = map(int, stat.readline().split()[1:8])
    return (user + nice + system + interrupts + soft_interrupts) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measures the models named."""
    folder, names = Path(sys.argv[2]), sys.argv[3].split(",")
    hvd.init()
    answers = [measure(name) for name in names]
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(answers), encoding="utf-8")
    hvd.shutdown()


if __name__ == "__main__":
    main()

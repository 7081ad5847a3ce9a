"""A rank of a job that goes on without ranks that it loses.  elastic_worker.py FOLDER MANNER [RANK]

Manners: steps, without TensorFlow; parts, a Keras model whose optimizer's state is partitioned over the ranks. Every
third step is committed. Notes have the number that a process has for life; "said" is when it goes on in a new session.

When FOLDER/stop is there, all ranks agree to end well.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

import smddp_tf as hvd
from smddp_tf import elastic
from tests.faults.notes import Notes
from tests.native_module import core

ELEMENTS, COMMIT_EVERY, READY_AFTER, PAUSE_SECONDS = 1_000, 3, 6, 0.02

folder, manner = sys.argv[1:3]
note = Notes(folder, int(os.environ["SMDDP_RUN_NUMBER"])).write
sessions = [0]


def summed(values: np.ndarray) -> np.ndarray:
    core().allreduce([values], "float64", "step", int(hvd.Sum))
    return values


def steps(state: Any, step: Any) -> None:
    """Until all have seen the file that ends the job. `step(number)` returns whether its result is right."""
    sessions[0] += 1
    if sessions[0] > 1:
        note("said", {"kind": "next session", "text": f"{hvd.size()} ranks go on", "at": time.time()})
    while summed(np.array([float(os.path.exists(f"{folder}/stop"))]))[0] == 0:
        if not step(state.number):
            note("wrong", state.number)
            sys.exit(f"step {state.number} is wrong")
        state.number += 1
        if state.number % COMMIT_EVERY == 0:
            state.commit()
        if state.number == READY_AFTER:
            note("ready", time.time())
        time.sleep(PAUSE_SECONDS)


def without_tensorflow() -> None:
    state = elastic.ObjectState(number=0, total=np.zeros(ELEMENTS))

    def step(number: int) -> bool:
        mine = np.arange(ELEMENTS, dtype=np.float64)[hvd.rank() :: hvd.size()]
        values = np.zeros(ELEMENTS)
        values[hvd.rank() :: hvd.size()] = mine + number
        state.total = state.total + summed(values)
        rest = number * (number + 1) / 2
        return np.array_equal(state.total, np.arange(ELEMENTS) * (number + 1.0) + rest)

    elastic.run(steps)(state, step)


def with_parts() -> None:
    import keras

    import smddp_tf.keras as hvk

    def compiled() -> keras.Model:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, "tanh"), keras.layers.Dense(1)])
        return model

    model, alone = compiled(), compiled()
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01), partition_state="world"), loss="mse")
    alone.compile(keras.optimizers.Adam(0.01), loss="mse")
    state = elastic.TensorFlowKerasState(model, number=0)

    def step(number: int) -> bool:
        x = np.random.default_rng(number).normal(size=(12, 64)).astype("float32")
        part = x[hvd.rank() :: hvd.size()]
        model.train_on_batch(part, part[:, :1])
        return True

    elastic.run(steps)(state, step)
    last = hvd.rank() == 0
    hvd.shutdown()
    if last:
        for number in range(state.number):
            x = np.random.default_rng(number).normal(size=(12, 64)).astype("float32")
            alone.train_on_batch(x, x[:, :1])
        for ours, theirs in zip(model.get_weights(), alone.get_weights()):
            if not np.allclose(ours, theirs, rtol=0, atol=1e-4 * np.abs(theirs).max()):
                note("wrong", state.number)


hvd.init()
(with_parts if manner == "parts" else without_tensorflow)()

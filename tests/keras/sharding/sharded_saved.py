"""Trains with optimizer state in parts, saves it, and goes on from what other numbers of ranks have saved.

    sharded_saved.py train FOLDER SHARD      saves, commits, goes on, and is killed
    sharded_saved.py resume FOLDER SHARD     goes on from each of these, to the same weights

SHARD: as in `hvd.DistributedOptimizer`, or "none". All ranks have the same data, so that their number does not matter.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np

import smddp_tf.keras as hvk
from smddp_tf.keras.elastic.states import TensorFlowKerasState

SHAPE = (24, 37)


def make(shard: str) -> keras.Model:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(width, activation="tanh") for width in (SHAPE[1], 19, 1)]
    model = keras.Sequential([keras.Input((SHAPE[0],)), *layers])
    optimizer = keras.optimizers.AdamW(0.01, use_ema=True)
    parts = {"none": None, "2": 2}.get(shard, shard)
    model.compile(hvk.DistributedOptimizer(optimizer, partition_state=parts), loss="mse")
    return model


def fit(model: keras.Model, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(48, SHAPE[0])).astype(np.float32)
    for first in range(0, 48, 8):
        model.train_on_batch(x[first : first + 8], x[first : first + 8, :1] * 2)


def train(folder: Path, shard: str) -> None:
    model = make(shard)
    fit(model, 1)
    model.save(folder / "saved.keras")
    model.save_weights(folder / "saved.weights.h5")
    state = TensorFlowKerasState(model, epoch=7)
    state.commit_to(folder / "commits")
    state.commit()  # parts travel to rank 0 while training continues
    if hvk.rank() == 0:
        np.savez(folder / "before.npz", *model.get_weights())
    fit(model, 2)
    if hvk.rank() == 0:
        np.savez(folder / "after.npz", *model.get_weights())
        print("trained", flush=True)
    state.finish_commit()
    hvk.allreduce(np.zeros(1), name="all have written")
    if hvk.rank() == hvk.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hvk.allreduce(np.zeros(1), name="one is dead")


def resume(folder: Path, shard: str) -> None:
    before = list(np.load(folder / "before.npz").values())
    expected = list(np.load(folder / "after.npz").values())
    loaded = hvk.load_model(folder / "saved.keras", partition_state={"none": None, "2": 2}.get(shard, shard))
    weights = make(shard)
    weights.optimizer.build(weights.trainable_variables)
    weights.load_weights(folder / "saved.weights.h5")
    resumed = make(shard)
    state = TensorFlowKerasState(resumed, epoch=0)
    state.commit_to(folder / "commits")
    state.resume()
    state.sync()
    assert state.epoch == 7
    assert all(np.array_equal(one, other) for one, other in zip(resumed.get_weights(), before))
    for name, model in (("loaded", loaded), ("weights", weights), ("resumed", resumed)):
        slots = sum(int(np.prod(variable.shape)) for variable in model.optimizer.variables)
        print(f"{name}: {slots} elements of the optimizer on rank {hvk.rank()}", flush=True)
        fit(model, 2)
        for one, other in zip(model.get_weights(), expected):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * np.abs(other).max(), err_msg=name)


if __name__ == "__main__":
    hvk.init()
    {"train": train, "resume": resume}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
    print(f"rank {hvk.rank()} of {hvk.size()}: as it must be")

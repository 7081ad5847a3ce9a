"""Trains on this rank's part of each batch and saves the weights: `train_alike.py OUT [RANK_TO_KILL]`."""

from __future__ import annotations

import os
import signal
import sys

import keras
import numpy as np

import smddp_tf as hvd
import smddp_tf.keras as hvd_keras

STEPS, BATCH = 20, 12


def main() -> None:
    hvd.init()
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7, "tanh"), keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.02, 0.9)), "mse")
    random = np.random.default_rng(11)
    x = random.normal(size=(STEPS, BATCH, 5)).astype(np.float32)
    y = np.sin(x.sum(axis=2, keepdims=True))
    mine = slice(hvd.rank() * BATCH // hvd.size(), (hvd.rank() + 1) * BATCH // hvd.size())
    for step in range(STEPS):
        if step == STEPS // 2 and sys.argv[2:] == [str(hvd.rank())]:
            os.kill(os.getpid(), signal.SIGKILL)
        model.train_on_batch(x[step, mine], y[step, mine])
    np.savez(f"{sys.argv[1]}.{hvd.rank()}.npz", *model.get_weights(), numbers=[hvd.size(), hvd.mpi_enabled()])


if __name__ == "__main__":
    main()

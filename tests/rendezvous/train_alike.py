"""Trains on this rank's part of each batch and saves the weights: `train_alike.py OUT [RANK_TO_KILL]`.

With KERAS_INITIALIZE in the environment, the arguments of `keras.distribution.initialize` as JSON, on whole batches
under its `DataParallel`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

import keras
import numpy as np

import smddp_tf as hvd
import smddp_tf.keras as hvd_keras

STEPS, BATCH = 20, 12


def main() -> None:
    if of_keras := os.environ.get("KERAS_INITIALIZE"):
        importlib.import_module("smddp_tf.keras.distribution")
        keras.distribution.initialize(*json.loads(of_keras))
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    else:
        hvd.init()
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7, "tanh"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.02, 0.9)
    model.compile(optimizer if of_keras else hvd_keras.DistributedOptimizer(optimizer), "mse")
    random = np.random.default_rng(11)
    x = random.normal(size=(STEPS, BATCH, 5)).astype(np.float32)
    y = np.sin(x.sum(axis=2, keepdims=True))
    if of_keras:
        model.fit(x.reshape(-1, 5), y.reshape(-1, 1), BATCH, shuffle=False, verbose=0)
    mine = slice(hvd.rank() * BATCH // hvd.size(), (hvd.rank() + 1) * BATCH // hvd.size())
    for step in range(0 if of_keras else STEPS):
        if step == STEPS // 2 and sys.argv[2:] == [str(hvd.rank())]:
            os.kill(os.getpid(), signal.SIGKILL)
        model.train_on_batch(x[step, mine], y[step, mine])
    np.savez(f"{sys.argv[1]}.{hvd.rank()}.npz", *model.get_weights(), numbers=[hvd.size(), hvd.mpi_enabled()])


if __name__ == "__main__":
    main()

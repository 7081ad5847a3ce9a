"""A job that is recorded: a short `fit`; one on two pretended nodes that is killed; one that asks for it itself."""

import os
import signal
import sys
import time

import keras
import numpy as np

import smddp_tf as hvd


def train(*callbacks):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
    x = np.random.default_rng(hvd.rank()).normal(size=(24, 4)).astype("float32")
    return model.fit(x, x[:, :2], batch_size=4, epochs=2, verbose=0, callbacks=list(callbacks)).history


class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            time.sleep(1.2)  # the recording is written twice a second
            os.kill(os.getpid(), signal.SIGKILL)


if sys.argv[1] == "killed":
    os.environ["SMDDP_HOST_ID"] = f"node of {os.environ['OMPI_COMM_WORLD_RANK']}"
if sys.argv[1] == "diagnose":
    hvd.init()
    train(hvd.callbacks.Diagnose(sys.argv[2]))
else:
    hvd.init()
    history = train(*[Killed()] if sys.argv[1] == "killed" else [])
    if hvd.rank() == 0:
        print("HISTORY", sorted(history))

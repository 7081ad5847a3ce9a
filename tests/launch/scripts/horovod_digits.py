"""A script for Horovod: `fit` on random data, which differ from rank to rank. Arguments: epochs, and --sync or nothing.

It refuses to go on after `fit`, and to run with other arguments.
"""

import sys

import horovod.tensorflow.keras as hvd
import keras
import numpy as np

hvd.init()
keras.utils.set_random_seed(hvd.rank())
x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05 * hvd.size())), loss="mse", jit_compile=False)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(x, x[:, :1], batch_size=8, epochs=int(sys.argv[2]), verbose=0, callbacks=callbacks)
raise SystemExit("fit has come to its end")

"""Keras training on several ranks: `mpirun -np 2 python train.py`, or `python train.py` for one."""

import keras
import numpy as np

import smddp_tf.keras as hvd

hvd.init()
x = np.random.default_rng(0).normal(size=(4096, 16)).astype("float32")  # the whole data, the same on all ranks
y = np.maximum(x, 0).sum(axis=1, keepdims=True)
data = hvd.data.shard((x, y), batch_size=32, shuffle=True)  # this rank's part
model = keras.Sequential([keras.layers.Dense(128, "relu"), keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.001 * hvd.size()))
model.compile(optimizer, loss="mse")
start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(data, epochs=10, callbacks=[start], verbose=2)
print(f"rank {hvd.rank()} of {hvd.size()}: sum of the weights {sum(w.sum() for w in model.get_weights()):.6f}")
if hvd.rank() == 0:
    model.save("model.keras")  # a plain Keras file

"""A program of Keras's documentation: nothing in it is ours. Prints the weights it ends with."""

import keras
import numpy as np

keras.distribution.initialize()
keras.utils.set_random_seed(3)
data_parallel = keras.distribution.DataParallel(devices=keras.distribution.list_devices())
keras.distribution.set_distribution(data_parallel)

inputs = np.random.default_rng(1).normal(size=(128, 28, 4)).astype(np.float32)
labels = np.random.default_rng(2).normal(size=(128, 10)).astype(np.float32)
model = keras.Sequential([keras.Input((28, 4)), keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")])
model.compile("adam", "mse")
model.fit(inputs, labels, batch_size=24, epochs=3, shuffle=False, verbose=0)
count = data_parallel.num_model_replicas
print(f"{count} processes: {sum(float(np.abs(w).sum()) for w in model.get_weights()):.4f}.", flush=True)

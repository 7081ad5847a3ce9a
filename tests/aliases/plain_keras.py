"""A program for one process. Prints the rows of its steps, the weights it ends with, and, of rank 1, a child's
distribution.
"""

import os
import subprocess
import sys

import keras
import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)  # an error where anything has been computed before
rows = set()


class Rows(keras.layers.Layer):
    def call(self, x):
        tf.py_function(lambda count: rows.add(int(count)), [tf.shape(x)[0]], [])
        return x


inputs = np.random.default_rng(1).normal(size=(48, 4)).astype(np.float32)
labels = np.random.default_rng(2).normal(size=(48, 2)).astype(np.float32)
shuffled = tf.data.Dataset.from_tensor_slices((inputs, labels)).shuffle(48).batch(8)  # no seed
model = keras.Sequential([keras.Input((4,)), Rows(), keras.layers.Dense(2, kernel_initializer="ones")])
model.compile("adam", "mse")
model.fit(inputs, labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
seen, total = sorted(rows), sum(float(np.abs(w).sum()) for w in model.get_weights())
model.fit(shuffled, verbose=0)
print(f"rows {seen}, weights {total:.4f}.", flush=True)
if os.environ.get("RANK") == "1":
    command = [sys.executable, "-c", "import keras; print(keras.distribution.distribution())"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    print(f"child {answer.strip()}.", flush=True)

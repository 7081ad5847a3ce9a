"""An overflow on rank 1 in the very first step, before any `fit`: all ranks skip it. Prints the loss scale."""

import keras
import numpy as np

import smddp_tf
import smddp_tf.keras.distribution

keras.distribution.initialize()
keras.config.set_dtype_policy("mixed_float16")
with keras.distribution.DataParallel().scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)  # or TensorFlow would trace the step a second time
    y = np.full((4, 1), np.inf if smddp_tf.rank() == 1 else 1.0, np.float32)
    model.train_on_batch(np.ones((4, 3), np.float32), y)
print(f"scale {float(model.optimizer.dynamic_scale.numpy()):g}.", flush=True)

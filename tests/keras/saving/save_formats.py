"""Trains small models on all ranks; rank 0 saves them in every format and writes down what must be found in them.

save_formats.py FOLDER
"""

import json
import pickle
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from user_optimizers import RegisteredSGD, UnregisteredSGD

import smddp_tf.keras as hvd

FOLDER = Path(sys.argv[1])
STEPS = 3
CASES = {
    "adam": lambda: hvd.DistributedOptimizer(keras.optimizers.Adam(0.01, clipnorm=0.1)),
    "mixed_float16": lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
    "scaled_by_the_user": lambda: hvd.DistributedOptimizer(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), initial_scale=64.0)
    ),
    "registered": lambda: hvd.DistributedOptimizer(RegisteredSGD(0.1, momentum=0.9)),
    "unregistered": lambda: hvd.DistributedOptimizer(UnregisteredSGD(0.1, momentum=0.9)),
}


def trained(case: str) -> keras.Model:
    keras.utils.set_random_seed(7)
    keras.config.set_dtype_policy("mixed_float16" if case == "mixed_float16" else "float32")
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)])
    keras.config.set_dtype_policy("float32")
    model.compile(CASES[case](), loss="mean_squared_error")
    x = np.random.default_rng(hvd.rank()).normal(size=(4 * STEPS, 6)).astype("float32")
    model.fit(x, np.tanh(x[:, :3]), batch_size=4, shuffle=False, verbose=0)
    return model


def save(case: str, model: keras.Model) -> None:
    """The optimizer's class matters for `.keras` and `.h5` only; the other formats are saved once.

    `.h5` comes last: a model that Keras 3 has saved so is pickled with the default optimizer afterwards.
    """
    model.save(FOLDER / f"{case}.keras")
    if case == "adam":
        model.save_weights(FOLDER / f"{case}.weights.h5")
        model.export(str(FOLDER / f"{case}.export"))
        tf.saved_model.save(model, str(FOLDER / f"{case}.saved_model"))
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(FOLDER / f"{case}.checkpoint"))
        (FOLDER / f"{case}.pickle").write_bytes(pickle.dumps(model))
    model.save(FOLDER / f"{case}.h5")


def facts(model: keras.Model) -> dict:
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return {
        "classes": [type(optimizer).__name__, type(inner).__name__],
        "state": [float(np.sum(np.asarray(v.numpy(), np.float64))) for v in optimizer.variables],
        "steps": int(inner.iterations.numpy()),
        "predicted": model.predict(np.ones((2, 6), "float32"), verbose=0).astype("float64").tolist(),
    }


hvd.init()
warnings.simplefilter("ignore")
expected = {}
for name in CASES:
    one = trained(name)
    if hvd.rank() == 0:
        save(name, one)
        expected[name] = facts(one)
if hvd.rank() == 0:
    (FOLDER / "expected.json").write_text(json.dumps(expected))
print("saved everything")

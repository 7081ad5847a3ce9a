"""Loads what save_formats.py has saved, with Keras and TensorFlow alone, and writes down what it found.

load_elsewhere.py FOLDER
"""

import json
import pickle
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import user_optimizers
from tensorflow.core.protobuf import saved_model_pb2

FOLDER = Path(sys.argv[1])
ONES = np.ones((2, 6), "float32")


def loaded(path: Path) -> keras.Model:
    if path.suffix == ".pickle":
        return pickle.loads(path.read_bytes())
    # The scale around the optimizer is not part of the file: `compile` adds it, under the policy in force.
    keras.config.set_dtype_policy("mixed_float16" if path.name.startswith("mixed_float16") else "float32")
    try:
        return keras.models.load_model(path, custom_objects={"UnregisteredSGD": user_optimizers.UnregisteredSGD})
    finally:
        keras.config.set_dtype_policy("float32")


def fresh() -> keras.Model:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)])
    model.compile(keras.optimizers.Adam(0.5), loss="mean_squared_error")
    model.optimizer.build(model.trainable_variables)
    return model


def filled(path: Path) -> keras.Model:
    model = fresh()
    if path.name.endswith(".weights.h5"):
        model.load_weights(path)
    else:
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        checkpoint.read(str(path)).assert_existing_objects_matched()
    return model


def facts(model: keras.Model, trainable: bool) -> dict:
    """With `trainable`, also trains one more step: the steps are counted before."""
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    found = {
        "classes": [type(optimizer).__name__, type(inner).__name__],
        "modules": [type(optimizer).__module__, type(inner).__module__],
        "state": [float(np.sum(np.asarray(v.numpy(), np.float64))) for v in optimizer.variables],
        "steps": int(inner.iterations.numpy()),
        "predicted": model.predict(ONES, verbose=0).astype("float64").tolist(),
    }
    if trainable:
        model.fit(np.ones((4, 6), "float32"), np.ones((4, 3), "float32"), verbose=0)
    return found


def ops_of(folder: Path) -> list:
    message = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graphs = [graph.graph_def for graph in message.meta_graphs]
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for graph in graphs for function in graph.library.function for node in function.node_def]
    return sorted({node.op for node in nodes})


def served(folder: Path) -> dict:
    module = tf.saved_model.load(str(folder))
    outputs = module.signatures["serving_default"](tf.constant(ONES))
    return {"predicted": next(iter(outputs.values())).numpy().astype("float64").tolist(), "ops": ops_of(folder)}


found = {}
for path in sorted(FOLDER.glob("*.*")):
    if path.suffix in (".export", ".saved_model"):
        found[path.name] = served(path)
    elif path.name.endswith(".weights.h5"):
        found[path.name] = facts(filled(path), trainable=True)
    elif path.suffix in (".keras", ".h5", ".pickle"):
        # Keras 3 cannot train on after .h5, whichever optimizer it finds there.
        found[path.name] = facts(loaded(path), trainable=path.suffix != ".h5")
found["adam.checkpoint"] = facts(filled(FOLDER / "adam.checkpoint"), trainable=True)
found["ours"] = [module for module in sys.modules if module.startswith("smddp")]
(FOLDER / "found.json").write_text(json.dumps(found))

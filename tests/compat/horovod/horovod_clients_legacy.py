"""The same with Keras 2, as recommenders-addons uses it: it looks at `str(optimizer)` and replaces what computes.

TF_USE_LEGACY_KERAS=1 mpirun -np 2 python -m smddp_tf.aliases horovod horovod_clients_legacy.py FOLDER
"""

import json
import os
import sys
import types
import zipfile

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf
import tf_keras

from tests.support.recorder import Recorder

RATE = 0.5
KINDS = {"new": tf_keras.optimizers.SGD, "legacy": tf_keras.optimizers.legacy.SGD}
hvd.init()
rank, size = hvd.rank(), hvd.size()
recorder = Recorder(sys.argv[1], rank)


def with_late_local_variables(optimizer, name):
    """Registers the local variables of the first list of variables."""
    assert "horovod._keras" in str(optimizer)
    assert hasattr(optimizer, "register_local_var")
    original, calls = getattr(optimizer, name), []

    def compute(*args, **kwargs):
        variables = kwargs.get("var_list") or args[1]
        if not calls:
            for variable in variables:
                if variable.name.startswith("own"):
                    optimizer.register_local_var(variable)
        calls.append(len(variables))
        return original(*args, **kwargs)

    setattr(optimizer, name, compute)
    return calls


def replaced_computation(kind, name):
    """`minimize` calls what was replaced: the local variable keeps its gradient, the other's is a mean, once."""
    optimizer = hvd.DistributedOptimizer(KINDS[kind](RATE))
    calls = with_late_local_variables(optimizer, name)
    own, shared = tf.Variable(1.0, name="own"), tf.Variable(1.0, name="shared")

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = (rank + 1.0) * own + 10.0 * (rank + 1.0) * shared
        optimizer.minimize(loss, [own, shared], tape=tape)

    for _ in range(3):
        step()
    assert set(calls) == {2}, calls
    mean = sum(10.0 * (one + 1) for one in range(size)) / size
    np.testing.assert_allclose([own, shared], [1 - 3 * RATE * (rank + 1) / size, 1 - 3 * RATE * mean], rtol=1e-6)


def replaced_reduction(kind):
    """In `fit`, compared with one process on the whole batch."""
    x = np.random.default_rng(1).normal(size=(24, 2)).astype("float32")
    calls, results = [], []
    for one in (True, False):
        tf_keras.utils.set_random_seed(1)
        model = tf_keras.Sequential([tf_keras.Input((2,)), tf_keras.layers.Dense(1)])
        optimizer = KINDS[kind](RATE)
        if not one:
            optimizer = hvd_keras.DistributedOptimizer(optimizer)

            def named(self, grads, variables):
                calls.append(len(variables))
                return self.raw_allreduce_grads(grads, variables, use_generic_names=True)

            optimizer.raw_allreduce_grads = optimizer._allreduce_grads
            optimizer._allreduce_grads = types.MethodType(named, optimizer)
        model.compile(optimizer, "mse")
        rows = x if one else x.reshape(-1, size, 12 // size, 2)[:, rank].reshape(-1, 2)
        model.fit(rows, rows.sum(axis=1, keepdims=True), 12 if one else 12 // size, verbose=0, shuffle=False)
        results.append(model.get_weights())
    assert set(calls) == {2}, calls
    for got, expected in zip(results[1], results[0]):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def files_say_keras(kind):
    path = os.path.join(sys.argv[1], f"{kind}-{rank}.keras")
    model = tf_keras.Sequential([tf_keras.Input((2,)), tf_keras.layers.Dense(1)])
    model.compile(hvd_keras.DistributedOptimizer(KINDS[kind](RATE)), "mse")
    assert repr(model.optimizer).startswith("<horovod._keras.SGD object")
    model.save(path)
    model.save(path.replace(".keras", ".h5"))
    text = zipfile.ZipFile(path).read("config.json").decode()
    assert "horovod" not in text
    assert json.loads(text)["compile_config"]["optimizer"]["class_name"].endswith("SGD")
    for name in (path, path.replace(".keras", ".h5")):
        assert type(tf_keras.models.load_model(name).optimizer) is KINDS[kind]
        assert type(hvd_keras.load_model(name).optimizer).__module__ == "horovod._keras"


def counter_of_passes():
    optimizer = hvd_keras.DistributedOptimizer(KINDS["legacy"](RATE), backward_passes_per_step=2)
    variable, seen = tf.Variable(1.0), []
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(1.0 + rank), variable)])
        seen.append(int(optimizer._agg_helper.counter))
    assert seen == [1, 0, 1], seen


cases = {
    "replaced computation, new": lambda: replaced_computation("new", "compute_gradients"),
    "replaced computation, legacy": lambda: replaced_computation("legacy", "_compute_gradients"),
    "replaced reduction, new": lambda: replaced_reduction("new"),
    "replaced reduction, legacy": lambda: replaced_reduction("legacy"),
    "files, new": lambda: files_say_keras("new"),
    "files, legacy": lambda: files_say_keras("legacy"),
    "counter of passes": counter_of_passes,
}
for case, function in cases.items():
    recorder.call(case, function)

"""`fit` in wrappers of other libraries, made before and after our optimizer.  mpirun -np 2 python fit_wrapped.py FOLDER

The ranks have different numbers of batches, so a `fit` that the library does not look after would not end.
"""

import functools
import sys

import keras
import numpy as np

from tests.support.recorder import Recorder

trainer = next(base for base in keras.Model.__mro__ if "make_train_function" in vars(base))
calls = []


def renaming(plain, name):
    """Hides the name and the signature of what it calls, as `functools.wraps` would not."""

    def call(self, *args, **kwargs):
        calls.append(name)
        return plain(self, *args, **kwargs)

    return call


def wrap(owner, name, keep_name):
    plain = owner.fit
    outer = renaming(plain, name)
    owner.fit = functools.wraps(plain)(outer) if keep_name else outer


class Own(keras.Sequential):
    """Keeps the function that was there before anybody wrapped it."""

    fit = renaming(keras.Model.fit, "subclass")


wrap(trainer, "trainer before", keep_name=False)
wrap(keras.Model, "model before", keep_name=True)

import smddp_tf.keras as hvd  # noqa: E402  (after the wrappers, which is the point)

hvd.init()
rank = hvd.rank()
recorder = Recorder(sys.argv[1], rank)


def train(make=keras.Sequential, expected=()):
    keras.utils.set_random_seed(1)
    model = make([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x = np.arange(8 * (rank + 1)).reshape(-1, 2).astype("float32") / 10 + rank
    calls.clear()
    model.fit(x, x[:, :1], 2, 2, 0, shuffle=False)  # batch_size, epochs, verbose: by their places
    assert calls == list(expected), calls
    steps = int(model.optimizer.iterations.numpy())
    assert steps == 2 * 2 * hvd.size(), f"{steps} steps"


recorder.call("before", lambda: train(expected=["model before", "trainer before"]))
recorder.call("subclass", lambda: train(Own, ["subclass"]))
wrap(trainer, "trainer after", keep_name=True)
wrap(keras.Model, "model after", keep_name=False)
recorder.call("after", lambda: train(expected=["model after", "model before", "trainer before"]))
keras.Model.fit = lambda self, *args, **kwargs: "replaced"
recorder.call("replaced", lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))

"""Training in the hands of libraries that replace or wrap parts of it.

mpirun -np 2 python wrapped_training.py FOLDER before|after

`fit`, `evaluate`, `train_step` and `make_train_function` are wrapped twice, with and without `functools.wraps`, in
`keras.Model` and in the class below it, before or after this library is imported. Gradients are added up, and losses
divided by the number of ranks, so a second reduction would change the weights, as a missing one would.
"""

import functools
import importlib.util
import os
import sys
from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.recorder import Recorder

FOLDER, WHEN = sys.argv[1:]
NAMES = ("fit", "evaluate", "train_step", "make_train_function")
ROWS, STEPS = 4, 6
trainer = next(base for base in keras.Model.__mro__ if "make_train_function" in vars(base))
calls = {}


def wrap(owner, name, keep_name):
    plain = getattr(owner, name)
    mark = f"{name} of {owner.__name__}, {'with' if keep_name else 'without'} its name"

    def call(*args, **kwargs):
        calls[mark] = calls.get(mark, 0) + 1
        return plain(*args, **kwargs)

    setattr(owner, name, functools.wraps(plain)(call) if keep_name else call)


def wrap_everything():
    for owner in (trainer, keras.Model):
        for name in NAMES:
            wrap(owner, name, keep_name=True)
            wrap(owner, name, keep_name=False)


if WHEN == "before":
    wrap_everything()

import smddp_tf.keras as hvd  # noqa: E402  (after the wrappers, which is the point)

hvd.init()
if WHEN == "after":
    hvd.DistributedOptimizer(keras.optimizers.SGD())
    wrap_everything()
rank, size = hvd.rank(), hvd.size()
recorder = Recorder(FOLDER, rank)


def data(part=True, steps=STEPS):
    x = np.random.default_rng(3).normal(size=(steps, size, ROWS, 3)).astype("float32")
    x = (x[:, rank] if part else x).reshape(-1, 3)
    return x, np.tanh(x.sum(axis=1, keepdims=True))


class OwnStep(keras.Model):
    """A `train_step` of the user's, which calls the one that libraries may have replaced."""

    steps = 0

    def train_step(self, *args):
        OwnStep.steps += 1
        return super().train_step(*args)


def model_of(kind=keras.Model):
    keras.utils.set_random_seed(2)
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, activation="tanh")(inputs)
    return kind(inputs, keras.layers.Dense(1)(hidden))


def mean_of_ranks(parts):
    """The loss of `parts` ranks, whose gradients are added up."""
    return lambda y, predicted: tf.reduce_mean(tf.square(y - predicted)) / parts


OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.2, momentum=0.5),
    "accumulation": lambda: keras.optimizers.SGD(0.2, gradient_accumulation_steps=2),
}


@functools.cache
def weights_of_one_process(optimizer, epochs):
    model = model_of()
    model.compile(OPTIMIZERS[optimizer](), mean_of_ranks(1))
    x, y = data(part=False)
    model.fit(x, y, batch_size=ROWS * size, epochs=epochs, shuffle=False, verbose=0)
    return model.get_weights()


def train(kind=keras.Model, optimizer="momentum", callbacks=(), epochs=2, **compiled):
    """Trains on this rank's part, evaluates, and compares with one process."""
    expected = weights_of_one_process(optimizer, epochs)
    model = model_of(kind)
    model.compile(hvd.DistributedOptimizer(OPTIMIZERS[optimizer](), op=hvd.Sum), mean_of_ranks(size), **compiled)
    calls.clear()
    x, y = data()
    validation = (x[:ROWS], y[:ROWS])
    model.fit(
        x,
        y,
        batch_size=ROWS,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[*callbacks],
        validation_data=validation,
    )
    check_calls(epochs)
    assert len(model.get_weights()) == len(expected)
    for got, wanted in zip(model.get_weights(), expected):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)
    before = dict(calls)
    model.evaluate(x, y, batch_size=ROWS, verbose=0)
    assert all(calls[mark] == before[mark] + 1 for mark in calls if mark.startswith("evaluate")), calls


def check_calls(epochs):
    """Every wrapper was called: those of `fit` once, those of `evaluate` in each epoch."""
    both = [(owner.__name__, how) for owner in (trainer, keras.Model) for how in ("with", "without")]
    for mark in (f"{{}} of {owner}, {how} its name" for owner, how in both):
        assert calls[mark.format("fit")] == 1, calls
        assert calls[mark.format("evaluate")] == epochs, calls
        assert calls[mark.format("make_train_function")] == 1, calls
        assert calls[mark.format("train_step")] >= 1, calls


def uneven():
    """Ranks with different numbers of batches: without a guard around `fit` this would not end."""
    model = model_of()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.2)), "mse")
    x, y = data(steps=2 * (rank + 1))
    model.fit(x, y, batch_size=ROWS, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 2 * size
    assert_equal_on_ranks(model)


def assert_equal_on_ranks(model):
    flat = np.concatenate([weight.ravel() for weight in model.get_weights()])
    everybody = np.asarray(hvd.allgather(flat[None]))
    assert (everybody == everybody[0]).all()


class Reporting(keras.callbacks.Callback):
    """As Ray Train's: every hook, and at the end of an epoch each rank saves the model and meets the others."""

    def __init__(self):
        super().__init__()
        self.reports, self.seen = [], set()

    def on_train_batch_end(self, batch, logs=None):
        self.seen.add("batch")

    def on_test_end(self, logs=None):
        self.seen.add("test")

    def on_epoch_end(self, epoch, logs=None):
        path = os.path.join(FOLDER, f"report-{rank}-{epoch}.keras")
        self.model.save(path)
        self.reports.append(dict(logs))
        hvd.broadcast_object(epoch, 0)
        loaded = keras.models.load_model(path, compile=False)
        assert all((ours == theirs).all() for ours, theirs in zip(self.model.get_weights(), loaded.get_weights()))


def reporting():
    callback = Reporting()
    train(callbacks=[callback])
    assert len(callback.reports) == 2
    assert callback.seen == {"batch", "test"}


class Pruned(Exception):
    pass


class Pruning(keras.callbacks.Callback):
    """As Optuna's: raises at the end of an epoch whose value is no better than asked for."""

    def __init__(self, limit):
        super().__init__()
        self.limit, self.reported = limit, []

    def on_epoch_end(self, epoch, logs=None):
        self.reported.append(logs["loss"])
        if epoch >= 1 and logs["loss"] > self.limit:
            raise Pruned(f"Trial was pruned at epoch {epoch}.")


def pruning():
    """With metrics that are averaged all ranks prune in the same epoch, and the next trial trains as if nothing was."""
    callback = Pruning(limit=0.0)
    with pytest.raises(Pruned, match="at epoch 1"):
        train(callbacks=[hvd.callbacks.MetricAverageCallback(), callback])
    everybody = np.asarray(hvd.allgather(np.array([callback.reported])))
    assert (everybody == everybody[0]).all()
    train(callbacks=[hvd.callbacks.MetricAverageCallback(), Pruning(limit=np.inf)])


class Logging(keras.callbacks.Callback):
    """As MLflow's; autologging appends it to the user's list."""

    logged: ClassVar[list] = []

    def on_train_batch_end(self, batch, logs=None):
        Logging.logged.append(batch)

    def on_epoch_end(self, epoch, logs=None):
        Logging.logged.append(sorted(logs))


def autologging(on_this_rank=True):
    """As MLflow's: `fit` gets one more callback, by a function with the name and the signature of the original."""
    plain = keras.Model.fit

    @functools.wraps(plain)
    def patched(*args, **kwargs):
        kwargs["callbacks"] = [*kwargs.get("callbacks", []), Logging()]
        return plain(*args, **kwargs)

    Logging.logged = []
    try:
        if on_this_rank:
            keras.Model.fit = patched
        train()
    finally:
        keras.Model.fit = plain
    one_epoch = [*range(STEPS), ["loss", "val_loss"]]
    assert Logging.logged == ([*one_epoch, *one_epoch] if on_this_rank else []), Logging.logged


def with_mlflow(flavor):
    """The real one, on all ranks."""
    mlflow = importlib.import_module("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{FOLDER}/{flavor}-{rank}.db")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("wrapped", f"{FOLDER}/{flavor}-{rank}"))
    library = importlib.import_module(f"mlflow.{flavor}")
    plain = keras.Model.fit
    try:
        library.autolog(log_models=False, log_datasets=False)
        assert keras.Model.fit is not plain
        with mlflow.start_run() as run:
            train()
        assert "loss" in mlflow.get_run(run.info.run_id).data.metrics
    finally:
        library.autolog(disable=True)
        keras.Model.fit = plain


def with_tensorboard(on_this_rank=True):
    callback = keras.callbacks.TensorBoard(os.path.join(FOLDER, f"tensorboard-{rank}"), update_freq=1)
    train(callbacks=[callback] if on_this_rank else [])


# Where not all are asked for: the others take long, or differ little.
IN_SHORT = {
    "before": ("a step of one's own", "eager", "uneven", "autologging on rank 0", "reporting", "pruning"),
    "after": ("plain", "uneven"),
}


def missing(package):
    return importlib.util.find_spec(package) is None


cases = {
    "plain": train,
    "a step of one's own": lambda: train(OwnStep),
    "eager": lambda: train(run_eagerly=True),
    "several steps at once": lambda: train(steps_per_execution=2),
    "accumulation": lambda: train(optimizer="accumulation"),
    "uneven": uneven,
    "autologging": autologging,
    "autologging on rank 0": lambda: autologging(on_this_rank=rank == 0),
    "reporting": reporting,
    "pruning": pruning,
    "tensorboard": with_tensorboard,
    "tensorboard on rank 0": lambda: with_tensorboard(on_this_rank=rank == 0),
    "mlflow.keras": lambda: with_mlflow("keras"),
    "mlflow.tensorflow": lambda: with_mlflow("tensorflow"),
}
for case, function in cases.items():
    package = case.partition(" ")[0].partition(".")[0]
    is_wanted = case in IN_SHORT[WHEN] or os.environ.get("SMDDP_TEST_FULL") == "1"
    if is_wanted and (package not in ("mlflow", "tensorboard") or not missing(package)):
        recorder.call(case, function)

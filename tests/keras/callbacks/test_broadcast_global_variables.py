"""BroadcastGlobalVariablesCallback: which variables are equal on all ranks, and from when on."""

from __future__ import annotations

import types
import warnings

import keras
import numpy as np
import pytest

import smddp_tf.keras as hvk
from smddp_tf.keras.roles.optimizers import iterations_of
from tests.support.callback_models import ROWS, AtFirstBatch, fit, model_of_rank
from tests.support.keras_training import same_on_all_ranks
from tests.variants import combined, in_full

pytestmark = pytest.mark.ranks("2")

callbacks = hvk.callbacks


@pytest.mark.parametrize("root", ["last", *in_full("first")])
def test_a_built_model_is_equal_before_its_first_batch(hvd, rank, size, mpi, root):
    root_rank = 0 if root == "first" else size - 1
    model = model_of_rank(rank)
    of_root = mpi.bcast([variable.numpy() for variable in model.variables], root_rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"])
    recorder = AtFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(root_rank), recorder)
    assert same_on_all_ranks(mpi, recorder.seen)
    for expected, seen in zip(of_root, recorder.seen):
        np.testing.assert_array_equal(expected, seen)


def test_the_optimizer_of_the_root_is_copied(hvd, rank, size, mpi):
    """Rank 0 comes back from a checkpoint, the others have nothing yet."""
    model = model_of_rank(rank)
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1 / (rank + 1), momentum=0.9))
    model.compile(optimizer, loss="mse")
    if rank == 0:
        optimizer.build(model.trainable_variables)
        optimizer.iterations.assign(7)
        for buffer in optimizer.momentums:
            buffer.assign(buffer + 0.5)
    recorder = AtFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(0), recorder)
    assert same_on_all_ranks(mpi, recorder.seen)
    assert int(optimizer.iterations.numpy()) == 7 + ROWS // 2
    assert float(optimizer.learning_rate.numpy()) == pytest.approx(0.1)


@pytest.mark.parametrize("who_is_built", ["rank 0", "all but rank 0", *in_full("nobody")])
def test_an_unbuilt_model_is_equal_after_its_first_batch(hvd, rank, size, mpi, who_is_built):
    built = {"nobody": False, "rank 0": rank == 0, "all but rank 0": rank > 0}[who_is_built]
    model = model_of_rank(rank, built)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"])

    class AfterFirstBatch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                self.seen = [weight.numpy() for weight in (*self.model.variables, *self.model.optimizer.variables)]

    recorder = AfterFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(0), recorder)
    assert same_on_all_ranks(mpi, recorder.seen)
    assert same_on_all_ranks(mpi, [variable.numpy() for variable in model.trainable_variables])


@pytest.mark.parametrize(("scaled", "calls"), combined([False, True], [1, 2]))
def test_what_ranks_have_accumulated_stays(hvd, rank, size, mpi, scaled, calls):
    """Weights are sent after a first batch that builds the model, and by a second `fit`: sums of gradients are not."""
    x = np.linspace(-1, 1, 6 * size).reshape(2 * size, 3) ** 3
    model = keras.Sequential([keras.layers.Dense(2, kernel_initializer="ones", dtype="float64")])
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(hvk.DistributedOptimizer(optimizer), loss="mse")
    mine = x[2 * rank : 2 * rank + 2]
    if calls == 2:
        model.build((None, 3))
    for rows in np.split(mine, calls):
        broadcast = callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(rows, rows[:, :2], batch_size=1, shuffle=False, verbose=0, callbacks=[broadcast])
    error = x.sum(axis=1, keepdims=True) - x[:, :2]
    gradient = x.T @ error / len(x)
    np.testing.assert_allclose(model.layers[0].kernel.numpy(), 1 - 0.1 * gradient, rtol=1e-5)


def test_what_the_root_alone_has_accumulated_is_sent(hvd, rank, size, mpi):
    """It has come back from a checkpoint; the sums that the others begin with are none."""
    model = model_of_rank(rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)), loss="mse")
    if rank == 0:
        model.optimizer.build(model.trainable_variables)
        iterations_of(model.optimizer).assign(3)
        for number, total in enumerate(model.optimizer._accumulated_gradients):
            total.assign(total + number + 1)
    recorder = AtFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(0), recorder)
    assert same_on_all_ranks(mpi, recorder.seen)


def test_variables_that_stay_local(hvd, rank, size, mpi):
    model = model_of_rank(rank)
    mean = model.layers[1].moving_mean
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    recorder = AtFirstBatch()
    fit(model, rank, callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[mean]), recorder)
    position = next(i for i, variable in enumerate(model.variables) if variable is mean)
    np.testing.assert_array_equal(recorder.seen[position], [float(rank)] * 4)
    del recorder.seen[position]
    assert same_on_all_ranks(mpi, recorder.seen)


@pytest.mark.parametrize("how", ["subclass", *in_full("instance")])
def test_variables_registered_when_the_first_batch_ends(hvd, rank, size, mpi, how):
    """As distributed-embeddings does it: with Horovod nothing has been sent by then."""
    model = model_of_rank(rank)
    mean = model.layers[1].moving_mean
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")

    class Registers(callbacks.BroadcastGlobalVariablesCallback):
        def on_batch_end(self, batch, logs=None):
            if batch == 0:
                before.append(mean.numpy())
                self.register_local_var(mean)
            super().on_batch_end(batch, logs)
            after.append([mean.numpy(), *(variable.numpy() for variable in self.model.trainable_variables)])

    before, after = [], []
    callback = Registers(0)
    if how == "instance":
        callback = callbacks.BroadcastGlobalVariablesCallback(0)
        callback.raw_on_batch_end = callback.on_batch_end

        def on_batch_end(self, batch, logs=None):
            if batch == 0:
                before.append(mean.numpy())
                self.register_local_var(mean)
            self.raw_on_batch_end(batch, logs)
            after.append([mean.numpy(), *(variable.numpy() for variable in self.model.trainable_variables)])

        callback.on_batch_end = types.MethodType(on_batch_end, callback)
    fit(model, rank, callback)
    np.testing.assert_array_equal(after[0][0], before[0])
    assert size == 1 or np.ptp(mpi.allgather(before[0][0])) > 0, "nothing was different"
    for values in after:
        assert same_on_all_ranks(mpi, values[1:])


@pytest.mark.parametrize("built", [True, False], ids=["built", "unbuilt"])
def test_a_hook_that_replaces_ours(hvd, rank, size, mpi, built):
    """`on_train_batch_end` is not Horovod's place: what exists is sent before. What does not exist then never is."""

    class Replaces(callbacks.BroadcastGlobalVariablesCallback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    model = model_of_rank(rank, built)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    recorder = AtFirstBatch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, rank, Replaces(0), recorder)
    told = [warning for warning in caught if "Replaces has sent no variables in this `fit`" in str(warning.message)]
    assert len(told) == (not built and rank == 0 and size > 1)
    assert not built or same_on_all_ranks(mpi, recorder.seen)


def test_a_variable_registered_too_late(hvd, rank, size):
    """What has been sent cannot be taken back."""
    model = model_of_rank(rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    callback = callbacks.BroadcastGlobalVariablesCallback(0)
    late = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: callback.register_local_var(model.layers[1].moving_mean)
    )
    with pytest.warns(UserWarning, match="has been sent already.*before `fit`"):
        fit(model, rank, callback, late)
    fit(model, rank, callback)  # and from now on it stays


def test_every_fit_broadcasts_anew(hvd, rank, size, mpi):
    model = model_of_rank(rank)
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    recorder, broadcast = AtFirstBatch(), callbacks.BroadcastGlobalVariablesCallback(0)
    fit(model, rank, broadcast, recorder)
    model.layers[0].kernel.assign(model.layers[0].kernel + rank)
    fit(model, rank, broadcast, recorder)
    assert same_on_all_ranks(mpi, recorder.seen)

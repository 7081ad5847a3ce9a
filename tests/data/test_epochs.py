"""smddp_tf.data.shard of arrays, PyDatasets and tf.data in `fit`: what each rank trains on, epoch after epoch."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.data.probed_fit import Batches, Probe, seen_in_fit
from tests.support.dealt_data import ITEMS, dealt
from tests.support.keras_training import dense_model, distance, flat_weights
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")


def test_batches_of_arrays_through_fit(hvd, size, mpi):
    x = np.zeros((ITEMS, 6), np.float32)
    y = np.repeat(np.arange(ITEMS, dtype=np.float32)[:, np.newaxis], 3, axis=1)
    part = hvd.data.shard((x, y), batch_size=1, shuffle=True, even=None if ITEMS % size == 0 else "pad")
    orders = [dealt(mpi, epoch) for epoch in seen_in_fit(part)]
    assert all(set(order) == set(range(ITEMS)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


class LooksInFit(keras.callbacks.Callback):
    """On one rank only, in the middle of each epoch and at its end: goes through the training data."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def look(self):
        keras.Sequential([keras.Input((6,)), keras.layers.Flatten()]).predict(self.part, verbose=0)

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            self.look()

    def on_epoch_end(self, epoch, logs=None):
        self.look()


def all_items() -> tuple[np.ndarray, np.ndarray]:
    x = np.zeros((ITEMS, 6), np.float32)
    return x, np.repeat(np.arange(ITEMS, dtype=np.float32)[:, np.newaxis], 3, axis=1)


PARTS = {
    "tf.data": lambda data, **who: data.shard(tf.data.Dataset.from_tensor_slices(all_items()), **who).batch(1),
    "arrays": lambda data, **who: data.shard(all_items(), batch_size=1, **who),
    "PyDataset": lambda data, **who: data.shard(Batches(), **who),
}


@functools.cache
def orders_of_one_process(data, kind):
    """The order of the items in each epoch, over a fit of 3 epochs and one of 2."""
    alone = PARTS[kind](data, shuffle=True, seed=5, rank=0, size=1)
    return [order for epochs in (3, 2) for order in seen_in_fit(alone, epochs=epochs, wrap=lambda plain: plain)]


@pytest.mark.parametrize("kind", ["PyDataset", "tf.data", *in_full("arrays")])  # arrays: below
def test_epochs_of_fit_add_up_whatever_one_rank_looks_at(hvd, rank, size, mpi, kind):
    """Before, in and after a `fit`; the orders are those that one process has, epoch by epoch, over two fits."""
    if ITEMS % size:
        pytest.skip("more ranks prove nothing new")
    part = PARTS[kind](hvd.data, shuffle=True, seed=5, even=None)
    expected = orders_of_one_process(hvd.data, kind)
    other_rank = rank == size - 1 and size > 1
    callbacks = [LooksInFit(part)] if other_rank else []
    orders = []
    for epochs in (3, 2):
        if other_rank:
            LooksInFit(part).look()
        orders += [dealt(mpi, epoch) for epoch in seen_in_fit(part, *callbacks, epochs=epochs)]
    assert orders == expected
    assert all(sorted(order) == list(range(ITEMS)) for order in orders)


class TapeProbe(Probe):
    """It reduces in a step of its own, so its optimizer is a plain one."""

    def train_step(self, data):
        x, y = data
        self.add_seen(y[0, 0])
        with hvk.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = self.compute_loss(x, y, self(x))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class LooksAsEpochsBegin(LooksInFit):
    def on_epoch_begin(self, epoch, logs=None):
        next(iter(self.part)) if isinstance(self.part, tf.data.Dataset) else self.look()


@pytest.mark.parametrize(
    ("kind", "probe"),
    [("arrays", Probe), ("PyDataset", TapeProbe), ("tf.data", TapeProbe)],
    ids=["arrays-optimizer", "PyDataset-tape", "tf.data-tape"],
)
def test_fit_deals_out_anew_with_an_optimizer_or_a_tape(hvd, rank, size, mpi, kind, probe):
    """The orders of one process, also where a rank has a look as an epoch begins, or a `fit` of its own before."""
    if ITEMS % size:
        pytest.skip("more ranks prove nothing new")
    part = PARTS[kind](hvd.data, shuffle=True, seed=5, even=None)
    plain = {"wrap": lambda optimizer: optimizer}
    expected = orders_of_one_process(hvd.data, kind)
    callbacks = [LooksAsEpochsBegin(part)] if rank == size - 1 and size > 1 else []
    orders = []
    for epochs in (3, 2):
        if rank == 0 and probe is TapeProbe:
            seen_in_fit(part, epochs=2, **plain)
        wrap = {} if probe is Probe else plain
        orders += [dealt(mpi, epoch) for epoch in seen_in_fit(part, *callbacks, epochs=epochs, probe=probe, **wrap)]
    assert all(sorted(order) == list(range(ITEMS)) for order in orders)
    if probe is Probe:
        assert orders == expected
    elif kind == "tf.data":  # Keras ends an epoch of a PyDataset before the first one, too
        assert [orders[epoch] for epoch in (1, 2, 4)] == [expected[epoch] for epoch in (1, 2, 4)]
    assert len({tuple(order) for order in orders}) == 5


def test_training_matches_one_process(hvd, rank, size):
    """The n-th batches of all ranks are the n-th batch of one process: equal weights after shuffled epochs."""
    random = np.random.default_rng(3)
    x = random.normal(size=(6 * size, 6)).astype(np.float32)
    y = np.tanh(x[:, :3])

    def trained(data, optimizer):
        model = dense_model()
        model.compile(optimizer, loss="mse")
        model.fit(data, epochs=4, shuffle=False, verbose=0)
        return flat_weights(model)

    one = hvd.data.shard((x, y), batch_size=2 * size, shuffle=True, seed=9, rank=0, size=1)
    mine = hvd.data.shard((x, y), batch_size=2, shuffle=True, seed=9)
    expected = trained(one, keras.optimizers.Adam(0.01))
    got = trained(mine, hvk.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    assert distance(got, expected) < 1e-6

"""The callbacks of smddp_tf.elastic: in `fit`, and what they count."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvd_keras
from smddp_tf import elastic
from smddp_tf.exceptions import HorovodInternalError
from tests.support.trouble import Once

pytestmark = pytest.mark.ranks("2", "2+2")


class OneWeight(keras.Model):
    """A model whose step costs next to nothing: gradient = the mean of the batch plus the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.add_weight(shape=(), initializer="zeros")
        self.built = True

    def train_step(self, data):
        self.optimizer.apply([tf.reduce_mean(data) + self.weight], [self.weight])
        return {"loss": tf.convert_to_tensor(self.weight)}


@pytest.mark.deadline(240)
def test_callbacks_in_fit(hvd, rank, size):
    """`fit` is interrupted in its second epoch and takes up at the last commit."""
    data = tf.data.Dataset.from_tensor_slices(np.arange(3.0, dtype=np.float32) * (rank + 1)).batch(1)

    def fit(error):
        model = OneWeight()
        optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
        model.compile(optimizer, run_eagerly=True)
        state = hvd_keras.elastic.KerasState(model, batch=0, epoch=0)
        trouble = Once(1 * 3 + 1, error)
        notes = []

        def note(batch, logs):
            notes.append((state.epoch, state.batch))
            trouble(state.epoch * 3 + batch)

        @hvd_keras.elastic.run
        def train(state):
            callbacks = [
                hvd_keras.elastic.UpdateBatchStateCallback(state),
                hvd_keras.elastic.UpdateEpochStateCallback(state),
                hvd_keras.elastic.CommitStateCallback(state, batches_per_commit=100),  # at the ends of epochs only
                keras.callbacks.LambdaCallback(on_train_batch_end=note),
            ]
            model.fit(data, epochs=3 - state.epoch, verbose=0, shuffle=False, callbacks=callbacks)

        train(state)
        assert (state.epoch, state.batch) == (3, 0)
        return float(model.weight.numpy()), notes

    expected, notes = fit(None)
    assert notes == [(epoch, batch) for epoch in range(3) for batch in range(3)]
    got, notes = fit(HorovodInternalError("in a batch"))
    assert got == expected
    assert notes == [(0, b) for b in range(3)] + [(1, b) for b in range(2)] + [(e, b) for e in (1, 2) for b in range(3)]


def test_commits_and_batches_are_counted(hvd):
    commits = []
    state = elastic.ObjectState(batch=0, epoch=0)
    state.commit = lambda: commits.append((state.epoch, state.batch))
    commit = elastic.CommitStateCallback(state, batches_per_commit=3)
    batches, epochs = elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state)
    batches.set_params({"steps": 4})

    def begin(start_batch, start_epoch):
        state.batch, state.epoch = start_batch, start_epoch
        commits.clear()
        for callback in (commit, batches, epochs):
            callback.on_train_begin()

    begin(0, 0)
    for epoch in range(2):
        batches.on_epoch_begin(epoch)
        epochs.on_epoch_begin(epoch)
        assert batches.params["steps"] == 4
        for batch in range(4):
            for callback in (batches, commit):
                callback.on_train_batch_end(batch)
        for callback in (batches, epochs, commit):
            callback.on_epoch_end(epoch)
    assert commits == [(0, 2), (1, 0), (1, 1), (2, 0)]  # the count goes on over the end of an epoch

    begin(3, 5)  # the rest of an epoch, then a whole one
    batches.set_params({"steps": 4})
    batches.on_epoch_begin(0)
    epochs.on_epoch_begin(0)
    assert batches.params["steps"] == 1
    batches.on_batch_end(0)
    assert state.batch == 0
    for callback in (batches, epochs):
        callback.on_epoch_end(0)
    assert (state.epoch, state.batch) == (6, 0)
    batches.on_epoch_begin(1)
    assert batches.params["steps"] == 4

    begin(0, 7)  # `fit(initial_epoch=state.epoch)`: Keras counts from there itself
    epochs.on_epoch_begin(7)
    epochs.on_epoch_end(7)
    assert state.epoch == 8

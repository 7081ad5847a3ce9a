"""`fit` with different numbers of batches on each rank: nothing hangs, and training is what one process would do."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.support.keras_training import dense_model, distance, flat_weights, same_on_all_ranks
from tests.support.uneven_data import (
    BATCH,
    EPOCHS,
    Steps,
    adam,
    batches_of,
    compiled,
    data_of,
    dataset_of,
    train_jointly,
)
from tests.variants import in_full

pytestmark = [pytest.mark.ranks("2", "2+1"), pytest.mark.usefixtures("several_ranks")]


# --- the default: ranks that ran out take part with zeros ---


class Sequence(keras.utils.PyDataset):
    def __init__(self, rank):
        super().__init__()
        self.batches = batches_of(rank)

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


@pytest.mark.parametrize("kind", ["arrays", "sequence", "several steps a call", *in_full("generator")])
def test_uneven_training_is_that_of_one_process(hvd, rank, size, mpi, kind):
    several = kind == "several steps a call"
    model = compiled(dense_model(), adam(), steps_per_execution=4 if several else 1)
    epochs = 1 if kind == "generator" else EPOCHS  # it gives its batches once
    steps = Steps()
    options = {"epochs": epochs, "verbose": 0, "callbacks": [steps], "shuffle": False}
    if kind == "generator":
        model.fit((batch for batch in batches_of(rank)), **options)
    elif kind == "sequence":
        model.fit(Sequence(rank), **options)
    else:
        model.fit(*data_of(rank), batch_size=BATCH, **options)
    ranks = [batches_of(other) for other in range(size)]
    assert distance(flat_weights(model), train_jointly(dense_model(), adam(), [ranks] * epochs)) < 1e-6
    assert same_on_all_ranks(mpi, model)
    longest = len(ranks[-1])
    assert steps.epochs == [-(-longest // 4) if several else longest] * epochs


def test_statistics_and_metrics_of_a_rank_that_ran_out_stay(hvd, rank, size):
    keras.utils.set_random_seed(7)
    model = compiled(
        keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(3)]),
        adam(),
        metrics=["mae"],
    )
    own = len(batches_of(rank))

    class AfterOwnData(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == own - 1:
                self.logs = dict(logs)
                self.mean = self.model.layers[1].moving_mean.numpy()

    seen = AfterOwnData()
    history = model.fit(dataset_of(rank, known=False), verbose=0, callbacks=[seen]).history
    np.testing.assert_array_equal(model.layers[1].moving_mean.numpy(), seen.mean)
    assert np.abs(seen.mean).max() > 0
    assert {key: values[0] for key, values in history.items()} == pytest.approx(seen.logs)


def test_two_fits_and_a_plain_step_after(hvd, rank, size, tmp_path):
    """The model is left as it was: its own step and function. What a callback saves meanwhile is the plain model."""
    model = compiled(dense_model(), adam())
    saver = keras.callbacks.ModelCheckpoint(tmp_path / f"{rank}.keras")
    for _ in range(2):
        model.fit(*data_of(rank), batch_size=BATCH, shuffle=False, verbose=0, callbacks=[saver])
    assert "train_step" not in vars(model)
    np.testing.assert_array_equal(
        flat_weights(keras.models.load_model(tmp_path / f"{rank}.keras")), flat_weights(model)
    )
    x, y = data_of(0)
    model.train_on_batch(x[:BATCH], y[:BATCH])
    plain, optimizer = dense_model(), adam()
    train_jointly(plain, optimizer, [[batches_of(other) for other in range(size)]] * 2)
    train_jointly(plain, optimizer, [[batches_of(0)[:1]]])
    assert distance(flat_weights(model), flat_weights(plain)) < 1e-6


def test_validation_and_averages_after_an_uneven_epoch(hvd, rank, size, mpi):
    model = compiled(dense_model(), adam())
    callbacks = [hvk.callbacks.BroadcastGlobalVariablesCallback(0), hvk.callbacks.MetricAverageCallback()]
    validation = data_of(10, 8 * (rank + 1))
    history = model.fit(
        dataset_of(rank, known=False), validation_data=validation, epochs=EPOCHS, verbose=0, callbacks=callbacks
    ).history
    assert all(theirs == history for theirs in mpi.allgather(history))


def test_a_rank_that_cannot_begin(hvd, rank, size):
    model = compiled(dense_model(), adam())
    x, y = data_of(0, 8)
    expected = "Data cardinality" if rank == 0 else "failed on rank 0: ValueError: Data cardinality"
    with pytest.raises((ValueError, RuntimeError), match=expected):
        model.fit(x, y[:4] if rank == 0 else y, verbose=0)


@pytest.mark.parametrize("ranks", [257, 513, 5001])
@pytest.mark.parametrize("wire", [tf.bfloat16, tf.float16, tf.float32])
def test_the_count_of_many_ranks_is_exact(hvd, size, monkeypatch, ranks, wire):
    """All ranks but one are active. Simulated: what goes into the plan comes back rounded as by its wire."""
    from smddp_tf.collectives import ops, run_time_values
    from smddp_tf.keras.roles import active_ranks, running
    from smddp_tf.keras.roles.wrapping import reducer_of

    active_count = ranks - 1
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD())

    def reduce(grads, variables):
        return [tf.cast(tf.cast(grad * (active_count / ranks), wire), tf.float32) for grad in grads]

    reduce.keeps_float32 = wire == tf.float32
    monkeypatch.setattr(reducer_of(optimizer), "over_ranks", lambda *_: reduce)
    monkeypatch.setattr(ops, "allreduce", lambda tensor, **kwargs: tensor * active_count)
    monkeypatch.setattr(run_time_values, "size", lambda: ranks)
    active = active_ranks.ActiveRanks()
    with running.within(active=active):
        [grad] = optimizer._allreduce([tf.constant([2.0])], [tf.Variable([1.0])])
    assert float(active.count) == active_count
    np.testing.assert_allclose(grad, [2.0], rtol=2**-8)

"""Epochs over the data of iterators: as long on all ranks, and from where the one before ended."""

from __future__ import annotations

import keras
import pytest

from tests.support.keras_training import dense_model, distance, flat_weights, same_on_all_ranks
from tests.support.uneven_data import (
    BATCH,
    EPOCHS,
    adam,
    batches_of,
    compiled,
    data_of,
    dataset_of,
    rows_of,
    train_jointly,
)

pytestmark = [pytest.mark.ranks("2", "2+1"), pytest.mark.usefixtures("several_ranks")]


def test_a_rank_without_any_data(hvd, rank, size, mpi):
    model = compiled(dense_model(), adam(), metrics=["mae"])
    rows = 0 if rank == size - 1 else rows_of(rank)
    history = model.fit(dataset_of(rank, rows), epochs=EPOCHS, verbose=0).history
    ranks = [batches_of(other) for other in range(size - 1)]
    assert distance(flat_weights(model), train_jointly(dense_model(), adam(), [ranks] * EPOCHS)) < 1e-6
    assert same_on_all_ranks(mpi, model)
    if rank == size - 1:
        assert history["loss"] == history["mae"] == [0.0] * EPOCHS


def test_different_steps_per_epoch_go_on_in_the_next_epoch(hvd, rank, size, mpi):
    model = compiled(dense_model(), adam())
    model.fit(dataset_of(rank, 64).repeat(), steps_per_epoch=3 + rank, epochs=EPOCHS, verbose=0)
    ranks = [batches_of(other, 64) for other in range(size)]
    epochs = [[ranks[r][epoch * (3 + r) : (epoch + 1) * (3 + r)] for r in range(size)] for epoch in range(EPOCHS)]
    assert distance(flat_weights(model), train_jointly(dense_model(), adam(), epochs)) < 1e-6
    assert same_on_all_ranks(mpi, model)


def test_even_data_are_left_alone(hvd, rank, size):
    model = compiled(dense_model(), adam())

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.changed = "train_step" in vars(self.model) or "run" in getattr(
                self.model.train_function, "__name__", ""
            )

    look = Look()
    model.fit(*data_of(rank, 16), batch_size=BATCH, verbose=0, callbacks=[look])
    assert not look.changed

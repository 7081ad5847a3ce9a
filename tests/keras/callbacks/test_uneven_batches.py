"""UnevenBatchesCallback: what `fit` does with uneven data, in each mode."""

from __future__ import annotations

import pytest

import smddp_tf.keras as hvk
from tests.support.keras_training import dense_model, distance, flat_weights, same_on_all_ranks
from tests.support.uneven_data import (
    EPOCHS,
    Steps,
    adam,
    batches_of,
    compiled,
    data_of,
    dataset_of,
    train_jointly,
)

pytestmark = [pytest.mark.ranks("2", "2+1"), pytest.mark.usefixtures("several_ranks")]


# --- the other choices ---


@pytest.mark.parametrize("known", [True, False])
def test_the_shortest_rank_ends_the_epoch(hvd, rank, size, mpi, known):
    model = compiled(dense_model(), adam())
    steps = Steps()
    choice = hvk.callbacks.UnevenBatchesCallback("shortest")
    model.fit(dataset_of(rank, known=known), epochs=EPOCHS, verbose=0, callbacks=[choice, steps])
    shortest = len(batches_of(0))
    ranks = [batches_of(other)[:shortest] for other in range(size)]
    assert distance(flat_weights(model), train_jointly(dense_model(), adam(), [ranks] * EPOCHS)) < 1e-6
    assert steps.epochs == [shortest] * EPOCHS
    assert same_on_all_ranks(mpi, model)


@pytest.mark.parametrize("known", [True, False])
def test_uneven_data_can_be_an_error(hvd, rank, size, known):
    model = compiled(dense_model(), adam())
    choice = hvk.callbacks.UnevenBatchesCallback("error")
    first, second = (3, 5) if known else (3, 4)  # unknown ones are counted when rank 0 has run out
    with pytest.raises(ValueError, match=rf"different numbers of batches.*rank 0: {first} .*rank 1: {second} "):
        model.fit(dataset_of(rank, known=known), verbose=0, callbacks=[choice])


def test_ranks_must_choose_alike(hvd, rank, size):
    model = compiled(dense_model(), adam())
    choice = hvk.callbacks.UnevenBatchesCallback("error" if rank else "join")
    with pytest.raises(ValueError, match="same UnevenBatchesCallback.*'join', 'error'"):
        model.fit(*data_of(0, 8), verbose=0, callbacks=[choice])
    with pytest.raises(ValueError, match="same `initial_epoch` and `epochs`"):
        model.fit(*data_of(0, 8), verbose=0, epochs=rank + 1)


def test_unknown_modes_are_refused(hvd):
    with pytest.raises(ValueError, match="`mode` must be one of 'join', .*Received: mode='wait'"):
        hvk.callbacks.UnevenBatchesCallback("wait")

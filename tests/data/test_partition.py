"""How items are shared out among ranks: properties of the index arithmetic, for any numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smddp_tf.data.partition import EVEN, Partition, order_of_epoch, total_length
from smddp_tf.data.sharding import shard

COUNTS = st.integers(0, 60)
SIZES = st.integers(1, 9)
SEEDS = st.none() | st.integers(0, 2**32 - 1)
EVENS = st.sampled_from(EVEN)


def parts(count, size, even, seed=None, epoch=0) -> list[np.ndarray]:
    return [Partition(count, rank, size, even, seed).indices(epoch) for rank in range(size)]


def dealt_back(of_ranks: list[np.ndarray]) -> list[int]:
    """The order that was dealt out: one item of each rank in turn."""
    longest = max(len(part) for part in of_ranks)
    return [int(part[i]) for i in range(longest) for part in of_ranks if i < len(part)]


@given(COUNTS, SIZES, EVENS, SEEDS, st.integers(0, 3))
def test_lengths(count, size, even, seed, epoch):
    of_ranks = parts(count, size, even, seed, epoch)
    lengths = [len(part) for part in of_ranks]
    assert lengths == [len(Partition(count, rank, size, even, seed)) for rank in range(size)]
    assert sum(lengths) == total_length(count, size, even)
    assert max(lengths) - min(lengths) <= (1 if even is None else 0)
    assert abs(sum(lengths) - count) < size


@given(COUNTS, SIZES, SEEDS, st.integers(0, 3))
def test_uneven_parts_hold_every_item_once(count, size, seed, epoch):
    assert sorted(np.concatenate(parts(count, size, None, seed, epoch))) == list(range(count))


@given(COUNTS, SIZES, SEEDS)
def test_dropping_loses_only_the_last_of_the_order(count, size, seed):
    kept = dealt_back(parts(count, size, "drop", seed))
    assert kept == list(order_of_epoch(count, seed, 0)[: len(kept)])


@given(COUNTS, SIZES, SEEDS)
def test_padding_begins_the_order_anew(count, size, seed):
    padded = dealt_back(parts(count, size, "pad", seed))
    order = list(order_of_epoch(count, seed, 0))
    assert padded == (order * (size + 1))[: len(padded)]
    assert set(padded) == set(range(count))


@given(st.integers(1, 60), SIZES, st.integers(1, 5), SEEDS)
def test_batches_of_all_ranks_are_the_batch_of_one_process(count, size, batch, seed):
    of_ranks = parts(count, size, None, seed)
    order = order_of_epoch(count, seed, 0)
    for n in range(-(-count // (batch * size))):
        together = np.concatenate([part[n * batch : (n + 1) * batch] for part in of_ranks])
        assert sorted(together) == sorted(order[n * batch * size : (n + 1) * batch * size])


@given(COUNTS, st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_the_order_of_an_epoch_is_a_permutation_that_seed_and_epoch_decide(count, seed, epoch):
    order = order_of_epoch(count, seed, epoch)
    assert sorted(order) == list(range(count))
    np.testing.assert_array_equal(order, order_of_epoch(count, seed, epoch))


def test_epochs_and_seeds_differ():
    orders = {tuple(order_of_epoch(30, seed, epoch)) for seed in (1, 2) for epoch in range(4)}
    assert len(orders) == 8
    assert list(order_of_epoch(5, None, 3)) == [0, 1, 2, 3, 4]


# --- wrong arguments ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"even": "both"}, '`even` must be "pad", "drop" or None'),
        ({"shuffle": 0}, "`shuffle` must be a bool or a positive number"),
        ({"shuffle": 5}, "for a tf.data.Dataset"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer"),
        ({"rank": 2}, "must be given together, with 0 <= rank < size"),
        ({"rank": 0, "size": None}, "must be given together"),
        ({"shuffle": True}, "needs a `seed` too"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        shard(np.arange(4), **{"rank": 0, "size": 2, **arguments})

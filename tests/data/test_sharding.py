"""smddp_tf.data.shard of tf.data datasets: what each rank sees, epoch after epoch, and what the ranks must agree on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.support.dealt_data import ITEMS, dealt, looks, numbers, of_unknown_length, padded
from tests.variants import combined

pytestmark = pytest.mark.ranks("2")


def test_known_length(hvd, size, mpi):
    dataset = tf.data.Dataset.range(ITEMS)
    part = hvd.data.shard(dataset)
    assert dealt(mpi, numbers(part)) == padded(size)
    assert int(part.cardinality()) == -(-ITEMS // size)
    assert dealt(mpi, numbers(hvd.data.shard(dataset, even="drop"))) == list(range(ITEMS - ITEMS % size))
    assert dealt(mpi, numbers(hvd.data.shard(dataset, even=None))) == list(range(ITEMS))
    assert numbers(hvd.data.shard(tf.data.Dataset.range(0))) == []
    assert len(numbers(hvd.data.shard(tf.data.Dataset.range(1)))) == 1


@pytest.mark.parametrize("count", [ITEMS, ITEMS + 1, ITEMS + 2])
def test_unknown_length(hvd, size, mpi, count):
    """To pad, the last group begins anew."""
    assert dealt(mpi, numbers(hvd.data.shard(of_unknown_length(count), even=None))) == list(range(count))
    kept = dealt(mpi, numbers(hvd.data.shard(of_unknown_length(count), even="drop")))
    assert kept == list(range(count - count % size))
    filled = dealt(mpi, numbers(hvd.data.shard(of_unknown_length(count))))
    rest = list(range(count - count % size, count))
    assert filled == [*kept, *(rest * size)[: size if rest else 0]]


def test_elements_of_any_structure(hvd, rank, size):
    """Elements that differ in shape go through a group as they are."""
    dataset = tf.data.Dataset.range(2 * size).filter(lambda _: True)
    dataset = dataset.map(lambda n: {"row": tf.range(n), "pair": (n, tf.strings.as_string(n))})
    for dataset_of_pairs in (dataset, dataset.apply(tf.data.experimental.assert_cardinality(2 * size))):
        elements = list(hvd.data.shard(dataset_of_pairs).as_numpy_iterator())
        assert [len(element["row"]) for element in elements] == [rank, rank + size]
        assert [element["pair"][1] for element in elements] == [str(rank).encode(), str(rank + size).encode()]


def test_without_end(hvd, rank, size):
    part = hvd.data.shard(tf.data.Dataset.range(3).repeat())
    assert numbers(part.take(5)) == [(rank + i * size) % 3 for i in range(5)]


@pytest.mark.parametrize(("known", "even"), combined([True, False], ["pad", "drop", None]))
def test_one_permutation_for_all_ranks(hvd, rank, size, mpi, known, even):
    """Another one in each epoch; the global seed, other on every rank, and an epoch cut short do not matter."""
    tf.random.set_seed(100 + rank)
    dataset = tf.data.Dataset.range(ITEMS) if known else of_unknown_length()
    part = hvd.data.shard(dataset, shuffle=True if known else ITEMS, even=even)
    orders = []
    for epoch in range(3):
        numbers(part.take(2 + epoch))
        orders.append(dealt(mpi, numbers(part)))
    for order in orders:
        missing, more = set(range(ITEMS)) - set(order), len(order) - len(set(order))
        assert len(missing) == (ITEMS % size if even == "drop" else 0)
        assert more == (-ITEMS % size if even == "pad" else 0)
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize(("even", "how"), combined(["pad", "drop", None], ["one element", "some", "all"]))
def test_every_epoch_adds_up_whatever_one_rank_looks_at(hvd, rank, size, mpi, how, even):
    part = hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=True, even=even)
    orders = []
    for epoch in range(3):
        if rank == epoch % size:
            looks(part, how)
        orders.append(dealt(mpi, numbers(part)))
    for order in orders:
        assert len(set(range(ITEMS)) - set(order)) == (ITEMS % size if even == "drop" else 0)
        assert len(order) - len(set(order)) == (-ITEMS % size if even == "pad" else 0)
    assert len({tuple(order) for order in orders}) == 3


def test_passes_inside_of_a_pipeline_add_up(hvd, rank, size, mpi):
    part = hvd.data.shard(tf.data.Dataset.range(2 * size), shuffle=True)
    if rank == 0:
        next(iter(part))
    mine = numbers(part.repeat(3).prefetch(2))
    for epoch in range(3):
        assert sorted(dealt(mpi, mine[2 * epoch : 2 * epoch + 2])) == list(range(2 * size))


def test_set_epoch_deals_out_anew(hvd, rank, size, mpi):
    """The order of all ranks together is that of one process with the same seed, for each number."""
    part = hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=ITEMS, seed=4, even=None)
    alone = hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=ITEMS, seed=4, rank=0, size=1)
    orders = []
    for epoch in (0, 1, 5, 1):
        looks(part, "all" if rank == 0 else "some")
        hvd.data.set_epoch(part.batch(3).prefetch(1), epoch)
        hvd.data.set_epoch(alone, epoch)
        orders.append(numbers(alone))
        assert dealt(mpi, numbers(part)) == orders[-1]
    assert orders[1] == orders[3]
    assert len({tuple(order) for order in orders}) == 3
    for wrong in (tf.data.Dataset.range(3), hvd.data.shard(tf.data.Dataset.range(3)), np.arange(3)):
        with pytest.raises(ValueError, match="`data` must be what hvd.data.shard"):
            hvd.data.set_epoch(wrong, 1)


def test_a_saved_iterator_goes_on(hvd, rank, size, tmp_path):
    """tf.train.Checkpoint keeps the order of the pass that it is in."""
    part = hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=True).batch(2)
    iterator = iter(part)
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "iterator"))
    rest = [batch.numpy().tolist() for batch in iterator]
    again = iter(part)
    tf.train.Checkpoint(iterator=again).read(path)
    assert [batch.numpy().tolist() for batch in again] == rest


def test_a_seed_repeats_the_order(hvd, rank, mpi):
    first, second, other = (
        numbers(hvd.data.shard(tf.data.Dataset.range(ITEMS), shuffle=True, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == second != other


def test_shuffling_everything_needs_a_length(hvd):
    with pytest.raises(ValueError, match="of unknown length.*shuffle=10_000"):
        hvd.data.shard(of_unknown_length(), shuffle=True)
    with pytest.raises(ValueError, match="without end"):
        hvd.data.shard(tf.data.Dataset.range(3).repeat(), shuffle=True)
    with pytest.raises(ValueError, match=r"Batch the result"):
        hvd.data.shard(tf.data.Dataset.range(3), batch_size=2)

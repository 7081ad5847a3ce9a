"""smddp_tf.data.shard of PyDatasets: in `fit`, in order, without end."""

from __future__ import annotations

import pytest

from tests.data.probed_fit import Batches, seen_in_fit
from tests.support.dealt_data import ITEMS, dealt, padded

pytestmark = pytest.mark.ranks("2")


@pytest.mark.parametrize("workers", [1, 3], ids=["one worker", "three workers"])
def test_py_dataset_through_fit(hvd, rank, size, mpi, workers):
    source = Batches(workers=workers, max_queue_size=4)
    part = hvd.data.shard(source, shuffle=True, seed=5)
    assert (part.workers, part.use_multiprocessing, part.max_queue_size) == (workers, False, 4)
    orders = [dealt(mpi, epoch) for epoch in seen_in_fit(part)]
    assert source.epochs >= 3
    assert all(len(order) == len(padded(size)) and set(order) == set(range(ITEMS)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    part.epoch = 1
    assert dealt(mpi, seen_in_fit(part, epochs=1)[0]) == orders[1]


def test_py_dataset_in_order(hvd, size, mpi):
    orders = [dealt(mpi, epoch) for epoch in seen_in_fit(hvd.data.shard(Batches(), even="drop"), epochs=2)]
    assert orders == [list(range(ITEMS - ITEMS % size))] * 2


def test_py_dataset_without_end(hvd, rank, size):
    class Endless(Batches):
        __len__ = None
        num_batches = None

    part = hvd.data.shard(Endless())
    assert part.num_batches is None
    assert [int(part[i][1][0, 0]) for i in range(3)] == [rank, rank + size, rank + 2 * size]
    with pytest.raises(ValueError, match="no order to shuffle"):
        hvd.data.shard(Endless(), shuffle=True)

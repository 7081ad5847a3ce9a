"""`DistributedOptimizer(partition_state=...)`: the same weights, bit by bit, and each rank has a part of the state."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest

from tests.support.sharded_models import (
    BATCH,
    HIDDEN,
    OPTIMIZERS,
    STEPS,
    assert_identical,
    degree_of,
    model_of,
    slot_elements,
    trained,
)
from tests.variants import FULL, in_full

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")

QUICK = ("adamw", "rmsprop", "ema that overwrites", "loss scale")
ON_NODES = {"world": "rmsprop", "node": "loss scale"}  # one for each degree


@functools.cache
def whole_of(rank: int, name: str, rows: int = BATCH * STEPS) -> keras.Model:
    """Trained without `partition_state`: the same for each degree."""
    return trained(rank, OPTIMIZERS[name](), rows=rows)


@pytest.mark.parametrize("name", [*QUICK, *in_full(*(name for name in OPTIMIZERS if name not in QUICK))])
def test_weights_are_identical(hvd, rank, size, mpi, shard, name):
    if size > 2 and name != ON_NODES.get(shard) and not FULL:
        pytest.skip("on more ranks one optimizer for each degree, but under make test-full")
    whole = whole_of(rank, name)
    ours = trained(rank, OPTIMIZERS[name](), partition_state=shard)
    assert_identical(ours, whole, model_of())
    degree = degree_of(hvd, shard)
    elements = mpi.allgather(slot_elements(ours))
    assert sum(elements) == slot_elements(whole) * hvd.size() // degree
    biggest_tensor = HIDDEN[0] * HIDDEN[1]
    if slot_elements(whole):
        assert max(elements) < slot_elements(whole) * (biggest_tensor / 2 + 4 * 16) / biggest_tensor


def test_state_is_that_of_whole_slots(hvd, rank, mpi, shard):
    """Every rank's parts, put together, are the slots without `shard`."""
    whole = whole_of(rank, "adam").optimizer
    ours = trained(rank, OPTIMIZERS["adam"](), partition_state=shard).optimizer
    degree = degree_of(hvd, shard)
    assert len(ours.variables) == len(whole.variables)
    for mine, expected in zip(ours.variables, whole.variables):
        parts = mpi.allgather(mine.numpy())
        if not len(expected.shape):
            assert mine.numpy() == expected.numpy()
            continue
        for first in range(0, hvd.size(), degree):
            flat = np.concatenate(parts[first : first + degree])
            np.testing.assert_array_equal(flat, expected.numpy().reshape(-1))


def test_uneven_numbers_of_batches(rank, shard):
    rows = BATCH * (STEPS - 5 * (rank == 0)) - 3
    whole = whole_of(rank, "adamw", rows)
    assert_identical(trained(rank, OPTIMIZERS["adamw"](), rows=rows, partition_state=shard), whole, model_of())

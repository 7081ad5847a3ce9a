"""Ranks that end their sessions at the end of the program wait for all others, of which most hear from a third rank."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest

from tests import native_module
from tests.reasons import raises
from tests.runtime.named.test_fusion_queue import SUM, as_ranks
from tests.support.plan_job import values

pytestmark = pytest.mark.native

_core = native_module.core()


def hosts(nodes: int, local_size: int) -> list[str]:
    return [f"node {node}" for node in range(nodes) for _ in range(local_size)]


def test_messages_at_the_end_grow_with_nodes() -> None:
    nodes, local_size = 5, 4
    size = nodes * local_size
    ranks = _core.Ranks(hosts(nodes, local_size))
    sent = [0] * size

    def body(rank: int) -> None:
        array = values(500, rank)
        ranks.allreduce(rank, [array], "x", SUM).wait()
        np.testing.assert_array_equal(array, sum(values(500, other) for other in range(size)))
        before = ranks.control_messages(rank)
        ranks.stop(rank, at_exit=True)
        sent[rank] = ranks.control_messages(rank) - before

    as_ranks(size, body)
    for rank in range(size):
        if rank % local_size:  # its node, the coordinator of "x", and what it last sent for "x"
            assert 0 < sent[rank] <= local_size + 1
    # Each rank's departure: to its node, from there to the other nodes, and to the ranks there.
    assert sum(sent) <= size * (local_size + 1 + nodes + size - local_size)


@pytest.mark.parametrize("seed", range(30))
def test_every_rank_hears_of_all_others(seed: int) -> None:
    """Some stop reading at once, at any time and also the readers of their nodes; the others must hear of all."""
    choose = random.Random(seed)
    nodes, local_size = choose.choice([(2, 3), (3, 2), (4, 3), (3, 1), (1, 4)])
    size = nodes * local_size
    at_exit = [choose.random() < 0.7 for _ in range(size)]
    pauses = [choose.choice([0, 0, 0.001, 0.003, 0.02]) for _ in range(size)]
    ranks = _core.Ranks(hosts(nodes, local_size))

    def body(rank: int) -> None:
        array = values(300, rank)
        ranks.allreduce(rank, [array], f"x {seed}", SUM).wait()
        time.sleep(pauses[rank])
        ranks.stop(rank, at_exit=at_exit[rank])

    as_ranks(size, body)  # a rank that waits for ever is an error here


def test_a_rank_that_goes_on_is_told_who_has_left() -> None:
    """Of another node, by the first rank of its own."""
    ranks = _core.Ranks(hosts(2, 2))
    warm = threading.Barrier(4)

    def body(rank: int) -> None:
        first = values(300, rank)
        ranks.allreduce(rank, [first], "x", SUM).wait()
        warm.wait()
        if rank == 3:
            ranks.stop(rank, at_exit=True)
            return
        array = values(5000, rank)
        with raises(_core.EngineError, "peer_left", match="Rank 3 has ended its session"):
            ranks.allreduce(rank, [array], "y", SUM).wait()
        ranks.stop(rank, at_exit=True)

    as_ranks(4, body)

"""Requests by name that recur get numbers, which stand for them in announcements and verdicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import native_module
from tests.reasons import raises
from tests.runtime.named.test_fusion_queue import SUM, as_ranks
from tests.support.layouts import LAYOUTS
from tests.support.plan_job import values

pytestmark = pytest.mark.native

_core = native_module.core()

NAMES = [f"a/layer/with/quite/a/long/name/kernel_{i}" for i in range(20)]
ELEMENTS = [3 + 200 * (i % 4) for i in range(20)]  # some are summed by the coordinator
CAPACITIES = (0, 7, 1024)


def start(layout: str, capacity: int = 1024) -> Any:
    return _core.Ranks(LAYOUTS[layout], bucket_bytes=8192, cache_capacity=capacity)


def step_of(ranks: Any, rank: int, step: int) -> list[np.ndarray]:
    arrays = [values(elements, rank, step, i) for i, elements in enumerate(ELEMENTS)]
    pending = [ranks.allreduce(rank, [array], name, SUM) for array, name in zip(arrays, NAMES)]
    others = {kind: values(50, rank, step) for kind in ("broadcast", "allgather", "barrier")}
    pending += [ranks.other(rank, kind, array, f"{kind} of every step") for kind, array in others.items()]
    for each in pending:
        each.wait()
    return arrays


@pytest.mark.parametrize("layout", ["2", "4", "1+1", "2+1", "1+4+2"])
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_sums_are_those_of_the_step(layout: str, capacity: int) -> None:
    ranks, size = start(layout, capacity), len(LAYOUTS[layout])

    def body(rank: int) -> None:
        for step in range(5):
            for i, array in enumerate(step_of(ranks, rank, step)):
                of_all = sum(values(ELEMENTS[i], other, step, i) for other in range(size))
                np.testing.assert_array_equal(array, of_all, err_msg=f"{NAMES[i]} in step {step} on rank {rank}")

    as_ranks(size, body)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_bytes_of_a_step(capacity: int) -> None:
    """Rank 0 coordinates all names; the bytes of rank 1 are announcements only."""
    ranks = start("2", capacity)
    sent: list[int] = []

    def body(rank: int) -> None:
        for step in range(5):
            before = ranks.control_bytes(rank)
            step_of(ranks, rank, step)
            at_the_end = values(1, rank)
            ranks.other(rank, "barrier", at_the_end, f"end of step {step}").wait()
            if rank == 1:
                sent.append(ranks.control_bytes(rank) - before)

    as_ranks(2, body)
    numbered = min(capacity, len(NAMES) + 3)
    least = sum(len(name) for name in NAMES[:numbered])
    varies = 9 * (len(NAMES) + 4)  # a message may travel alone, or with others, which adds its length
    assert abs(sent[1] - sent[0]) <= varies
    for later in sent[2:]:
        saved = sent[0] - later
        assert saved >= least if numbered else abs(saved) <= varies


def test_a_request_that_changes_on_one_rank_is_refused_and_the_old_one_works_again() -> None:
    ranks = start("2")

    def reduced(rank: int, elements: int) -> np.ndarray:
        array = values(elements, rank)
        ranks.allreduce(rank, [array], NAMES[0], SUM).wait()
        return array

    def body(rank: int) -> None:
        for _ in range(3):
            np.testing.assert_array_equal(reduced(rank, 600), values(600, 0) + values(600, 1))
        with raises(
            _core.EngineError, "tensors_differ", match=r"tensor shapes: rank 0 has \[600\], rank 1 has \[601\]"
        ):
            reduced(rank, 600 + rank)
        with raises(_core.EngineError, "disagreement", match="operations: rank 0 has allreduce, rank 1 has broadcast"):
            if rank == 0:
                reduced(rank, 600)
            else:
                array = values(600, rank)
                ranks.other(rank, "broadcast", array, NAMES[0]).wait()
        np.testing.assert_array_equal(reduced(rank, 600), values(600, 0) + values(600, 1))
        for _ in range(3):  # on all ranks: another request, with a number of its own
            np.testing.assert_array_equal(reduced(rank, 700), values(700, 0) + values(700, 1))
        np.testing.assert_array_equal(reduced(rank, 600), values(600, 0) + values(600, 1))

    as_ranks(2, body)


def test_a_rank_that_has_joined_takes_part_in_numbered_requests() -> None:
    ranks, size = start("2+1"), 3

    def body(rank: int) -> None:
        for step in range(3):
            step_of(ranks, rank, step)
        if rank == 1:
            assert ranks.join(rank).wait() in (0, 2)
            return
        array = values(500, rank)
        name = NAMES[0]
        for _ in range(2):
            again = values(ELEMENTS[0], rank, 9)
            ranks.allreduce(rank, [again], name, SUM).wait()
            np.testing.assert_array_equal(again, values(ELEMENTS[0], 0, 9) + values(ELEMENTS[0], 2, 9))
        ranks.allreduce(rank, [array], "only these two", SUM).wait()
        np.testing.assert_array_equal(array, values(500, 0) + values(500, 2))
        assert ranks.join(rank).wait() in (0, 2)

    as_ranks(size, body)


def test_names_that_are_used_once_take_no_numbers() -> None:
    """A program with a new name in every step leaves the few numbers to what recurs."""
    ranks = start("2", capacity=1)
    sent: list[int] = []

    def body(rank: int) -> None:
        for step in range(6):
            array = values(600, rank, step)
            ranks.allreduce(rank, [array], f"{NAMES[0]} of step {step}", SUM).wait()
            before = ranks.control_bytes(rank)
            ranks.allreduce(rank, [array], NAMES[1], SUM).wait()
            if rank == 1:
                sent.append(ranks.control_bytes(rank) - before)

    as_ranks(2, body)
    assert sent[0] == sent[1] > len(NAMES[1])
    assert all(each < len(NAMES[1]) for each in sent[2:])

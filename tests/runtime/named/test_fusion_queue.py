"""Named allreduces that become complete while others travel are reduced together: the same sums, bit by bit.

Which of them go together is in test_fusion_queue.cc.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests import native_module
from tests.reasons import raises
from tests.support.layouts import LAYOUTS
from tests.support.plan_job import values

pytestmark = pytest.mark.native

_core = native_module.core()

AVERAGE, SUM, MIN, MAX = 0, 1, 3, 4
MOST_BYTES = 1 << 20
# Most fit together, some are summed by the coordinator, and the last is too large.
ELEMENTS = [*(300 + 17 * i for i in range(60)), 1, 2, 5000, 0, 20, (4 << 20) // 4 + 1]

over_layouts = pytest.mark.parametrize("layout", ["2", "4", "1+1", "2+1", "1+4+2"])


def as_ranks(size: int, body: Callable[[int], None]) -> None:
    """Calls body(rank) in one thread for each rank; the first error is raised."""
    errors: list[BaseException] = []

    def guarded(rank: int) -> None:
        try:
            body(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def start(layout: str, bucket_bytes: int = MOST_BYTES) -> Any:
    return _core.Ranks(LAYOUTS[layout], bucket_bytes=bucket_bytes)


def reduce_all(ranks: Any, rank: int, seed: int, arrays: list[np.ndarray], op_of: Callable[[int], int]) -> None:
    """Hands all over, in an order that differs by rank, and waits for them."""
    order = list(range(len(arrays)))
    random.Random(f"{seed} {rank}").shuffle(order)
    pending = [ranks.allreduce(rank, [arrays[i]], f"tensor {i}", op_of(i)) for i in order]
    for each in pending:
        each.wait()


@over_layouts
@pytest.mark.parametrize("seed", range(3))
def test_sums_of_requests_in_another_order_on_each_rank(layout: str, seed: int) -> None:
    ranks, size = start(layout), len(LAYOUTS[layout])
    reduced = {SUM: np.sum, MAX: np.max, MIN: np.min}
    ops = [random.Random(seed).choice([SUM, SUM, SUM, MAX, MIN]) for _ in ELEMENTS]

    def body(rank: int) -> None:
        for step in range(3):
            arrays = [values(elements, rank, step, i) for i, elements in enumerate(ELEMENTS)]
            reduce_all(ranks, rank, seed, arrays, ops.__getitem__)
            for i, elements in enumerate(ELEMENTS):
                of_all = np.stack([values(elements, other, step, i) for other in range(size)])
                np.testing.assert_array_equal(arrays[i], reduced[ops[i]](of_all, axis=0), err_msg=f"{i} of {rank}")

    as_ranks(size, body)


@over_layouts
def test_every_run_and_every_grouping_gives_the_same_bits(layout: str) -> None:
    size = len(LAYOUTS[layout])
    elements = ELEMENTS[:40]

    def brought(rank: int) -> list[np.ndarray]:
        return [np.random.default_rng([rank, i]).standard_normal(n, "f4") for i, n in enumerate(elements)]

    def results(seed: int, bucket_bytes: int) -> list[bytes]:
        ranks = start(layout, bucket_bytes)
        arrays = [brought(rank) for rank in range(size)]
        as_ranks(size, lambda rank: reduce_all(ranks, rank, seed, arrays[rank], lambda _: AVERAGE))
        of_rank = [b"".join(array.tobytes() for array in mine) for mine in arrays]
        assert len(set(of_rank)) == 1
        return of_rank[:1]

    one_by_one = results(0, bucket_bytes=0)
    for seed in range(5):
        assert results(seed, MOST_BYTES) == one_by_one
        assert results(seed, 20_000) == one_by_one


def test_errors_of_a_name_do_not_overtake_its_sums() -> None:
    """The second request of a name, made while the first waits for others to end, is refused; the first is not."""
    ranks = start("2")
    arrays = {(rank, i): values(40_000, rank, i) for rank in range(2) for i in range(30)}
    again = [values(40_000, rank) for rank in range(2)]
    refused: list[Any] = []

    def body(rank: int) -> None:
        pending = [ranks.allreduce(rank, [arrays[rank, i]], f"tensor {i}", SUM) for i in range(30)]
        second = ranks.allreduce(rank, [again[rank]], "tensor 29", SUM)
        for each in pending:
            each.wait()
        refused.append(second)

    as_ranks(2, body)
    for i in range(30):
        expected = values(40_000, 0, i) + values(40_000, 1, i)
        for rank in range(2):
            np.testing.assert_array_equal(arrays[rank, i], expected)
    outcomes = set()
    for second in refused:
        try:
            second.wait()
            outcomes.add("summed")  # the first had ended on both ranks
        except ValueError as error:
            outcomes.add("refused" if "same name" in str(error) else str(error))
    assert outcomes in ({"summed"}, {"refused"})


def test_a_rank_that_leaves_answers_what_waits() -> None:
    ranks = start("2")
    pending = [ranks.allreduce(0, [values(5000, 0, i)], f"tensor {i}", SUM) for i in range(50)]
    ranks.stop(1)
    for each in pending:
        with raises(_core.EngineError, "peer_left", match="Rank 1"):
            each.wait()

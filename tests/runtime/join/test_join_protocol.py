"""hvd.join over ranks that are threads of this process: who has no more data brings zeros until all have joined.

The seed of a random case is part of its name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests import native_module
from tests.support.layouts import LAYOUTS

pytestmark = pytest.mark.native

_core = native_module.core()

AVERAGE, SUM, MIN, MAX, PRODUCT = 0, 1, 3, 4, 5
ELEMENTS = [700, 1, 2500, 0, 300, 1200, 40, 1024]  # of the tensors of a plan; several buckets
ROUNDS = 4
SECONDS = 50.0  # the cluster gives up what stands still after 60


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
        thread.join(SECONDS)
        assert not thread.is_alive(), f"a rank stands still; errors so far: {errors}"
    if errors:
        raise errors[0]


def values(elements: int, *key: int) -> np.ndarray:
    """Whole numbers, different for every key and place; their sums are exact."""
    offset = sum((3 + 2 * i) * part for i, part in enumerate(key))
    return ((np.arange(elements) * 7 + offset * 13) % 251 + 1).astype(np.float32)


def step(ranks: Any, rank: int, plan: int, arrays: list[np.ndarray], order: np.ndarray) -> list[Any]:
    return [ranks.gradient(rank, plan, int(index), arrays[index]) for index in order]


class Begun(NamedTuple):
    """Requests of one rank, and what must be true when they are through."""

    pending: list[Any]
    check: Callable[[], None]

    def wait(self) -> None:
        for each in self.pending:
            each.wait()
        self.check()


class Case:
    """Some rounds in which every rank has another number of batches. A batch is a step of one or two plans and a small
    and a large allreduce; what each is comes from the seed, the same on all ranks. Some ranks join before their last
    batch is through.
    """

    def __init__(self, layout: str, seed: int) -> None:
        self.hosts = LAYOUTS[layout]
        self.size = len(self.hosts)
        self.seed = seed
        rng = np.random.default_rng(seed)
        self.batches = rng.integers(0, 5, [ROUNDS, self.size])  # by round, rank
        self.batches[rng.integers(ROUNDS), rng.integers(self.size)] = 12  # one rank alone for long
        self.kinds = rng.integers(0, 6, [ROUNDS, 12])  # by round, batch
        self.ranks = _core.Ranks(self.hosts)
        self.last = [[-1] * self.size for _ in range(ROUNDS)]
        self.plans: list[dict[str, int]] = [{} for _ in range(self.size)]

    def run(self) -> None:
        as_ranks(self.size, self.all_rounds)
        for of_round in self.last:
            assert len(set(of_round)) == 1
            assert of_round[0] in range(self.size)

    def all_rounds(self, rank: int) -> None:
        rng = np.random.default_rng([self.seed, rank])
        for number in range(ROUNDS):
            begun: list[Begun] = []
            for batch in range(self.batches[number, rank]):
                self.wait_for(begun)
                time.sleep(rng.choice([0, 0, 0.0003, 0.003]))
                begun = self.batch(rank, number, batch, rng)
            if rng.random() < 0.5:
                self.wait_for(begun)
            self.last[number][rank] = self.ranks.join(rank).wait()
            self.wait_for(begun)
            if number % 2 == 0:
                self.named("after", rank, number, 99, 10, range(self.size)).wait()

    def wait_for(self, begun: list[Begun]) -> None:
        while begun:
            begun.pop().wait()

    def batch(self, rank: int, number: int, batch: int, rng: np.random.Generator) -> list[Begun]:
        active = [other for other in range(self.size) if self.batches[number, other] > batch]
        kind = self.kinds[number, batch]
        begun = []
        if kind < 5:
            begun.append(self.planned("first" if kind < 3 else "second", rank, number, batch, active, rng))
        if kind == 2:
            begun.append(self.planned("third", rank, number, batch, active, rng))
        if kind % 2 == 0:
            begun.append(self.named("small", rank, number, batch, 20, active))
        if kind > 3:
            begun.append(self.named("large", rank, number, batch, 5000, active))
        return begun

    def planned(self, key: str, rank: int, number: int, batch: int, active: Any, rng: np.random.Generator) -> Begun:
        """Each rank registers a plan when it first needs it."""
        plans = self.plans[rank]
        if key not in plans:
            plans[key] = self.ranks.plan(rank, key, ELEMENTS, SUM)
        arrays = [values(n, rank, number, batch, i, len(key)) for i, n in enumerate(ELEMENTS)]

        def check() -> None:
            for i, n in enumerate(ELEMENTS):
                expected = sum(values(n, other, number, batch, i, len(key)) for other in active)
                np.testing.assert_array_equal(arrays[i], expected, err_msg=f"{key} {i}, round {number}, batch {batch}")

        return Begun(step(self.ranks, rank, plans[key], arrays, rng.permutation(len(ELEMENTS))), check)

    def named(self, name: str, rank: int, number: int, batch: int, elements: int, active: Any) -> Begun:
        array = values(elements, rank, number, batch)

        def check() -> None:
            total = sum(values(elements, other, number, batch) for other in active)
            np.testing.assert_allclose(array, total / self.size, rtol=1e-6, err_msg=f"{name}, {number}, {batch}")

        return Begun([self.ranks.allreduce(rank, [array], name, AVERAGE)], check)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layout", ["1", "2", "1+1", "3", "2+1", "2+2"])
def test_random_rounds(layout: str, seed: int) -> None:
    Case(layout, seed).run()


@pytest.mark.parametrize("joined", [0, 1])
def test_a_rank_that_has_never_traced_the_step(joined: int) -> None:
    """It learns the plan from the verdict; also rank 0, which tells the order, from zeros alone."""
    ranks = _core.Ranks(LAYOUTS["3"])

    def body(rank: int) -> None:
        if rank != joined:
            plan = ranks.plan(rank, "plan", ELEMENTS, AVERAGE)
            for number in range(4):
                arrays = [values(n, rank, number, i) for i, n in enumerate(ELEMENTS)]
                for pending in step(ranks, rank, plan, arrays, np.random.default_rng(rank).permutation(len(ELEMENTS))):
                    pending.wait()
                for i, n in enumerate(ELEMENTS):
                    total = sum(values(n, other, number, i) for other in range(3) if other != joined)
                    np.testing.assert_allclose(arrays[i], total / 3, rtol=1e-6)
        ranks.join(rank).wait()

    as_ranks(3, body)


def test_a_plan_met_while_joined_is_known_afterwards() -> None:
    """Rank 1 was away when rank 0 began "b". Later it may use "b", or not and go on with "c", of the same key."""
    ranks = _core.Ranks(LAYOUTS["2"])

    def use(rank: int, elements: int, total: float) -> None:
        array = np.full(elements, rank + 1.0, np.float32)
        plan = ranks.plan(rank, "key", [elements], SUM)
        ranks.gradient(rank, plan, 0, array).wait()
        np.testing.assert_array_equal(array, total)

    def body(rank: int) -> None:
        use(rank, 3, 3.0)
        if rank == 0:
            use(0, 4, 1.0)
            use(0, 5, 1.0)
        ranks.join(rank).wait()
        use(rank, 6, 3.0)
        use(rank, 4, 3.0)
        use(rank, 3, 3.0)

    as_ranks(2, body)


def test_what_is_under_way_when_a_rank_joins() -> None:
    """Names that only one rank asks for, and a step begun in part, end with zeros of the others."""
    ranks = _core.Ranks(LAYOUTS["2+1"])
    all_begun = threading.Barrier(3)

    def body(rank: int) -> None:
        plan = ranks.plan(rank, "plan", ELEMENTS, SUM)
        arrays = [values(n, rank, i) for i, n in enumerate(ELEMENTS)]
        mine, large = values(7, rank), values(3000, rank)
        pending = [
            ranks.allreduce(rank, [mine], f"of {rank}", SUM),
            ranks.allreduce(rank, [large], f"large of {rank}", SUM),
            *[ranks.gradient(rank, plan, i, arrays[i]) for i in range(len(ELEMENTS)) if i % 3 != rank],
        ]
        all_begun.wait(SECONDS)
        ranks.join(rank).wait()
        for each in pending:
            each.wait()
        np.testing.assert_array_equal(mine, values(7, rank))
        np.testing.assert_array_equal(large, values(3000, rank))
        for i, n in enumerate(ELEMENTS):
            if i % 3 != rank:
                np.testing.assert_array_equal(arrays[i], sum(values(n, r, i) for r in range(3) if i % 3 != r))

    as_ranks(3, body)


def test_what_comes_after_join_waits_for_the_next_round() -> None:
    ranks = _core.Ranks(LAYOUTS["2"])
    in_time = np.ones(3000, np.float32)
    later = [np.full(3, rank + 1, np.float32) for rank in range(2)]
    joined = [ranks.join(0)]
    pending = [ranks.allreduce(0, [later[0]], "name", SUM)]  # rank 0's next round
    early = ranks.allreduce(1, [in_time], "name", SUM)  # rank 1 is still in the first
    early.wait()
    np.testing.assert_array_equal(in_time, 1)
    joined.append(ranks.join(1))
    assert [each.wait() for each in joined] == [1, 1]
    pending.append(ranks.allreduce(1, [later[1]], "name", SUM))
    for each in pending:
        each.wait()
    np.testing.assert_array_equal(later, 3)


@pytest.mark.parametrize("kind", ["allgather", "broadcast", "barrier", "Min", "Max", "Product"])
def test_what_zeros_would_spoil_is_refused(kind: str) -> None:
    ranks = _core.Ranks(LAYOUTS["3"])
    kept = []

    def ask(rank: int) -> Any:
        array = np.arange(5, dtype=np.float32)
        kept.append(array)
        if kind in ("Min", "Max", "Product"):
            return ranks.allreduce(rank, [array], "name", {"Min": MIN, "Max": MAX, "Product": PRODUCT}[kind])
        return ranks.other(rank, kind, array, "name")

    joined = [ranks.join(2)]
    for pending in [ask(rank) for rank in range(2)]:
        with pytest.raises(_core.EngineError, match=r"is not supported with Join at this time: rank 2"):
            pending.wait()
    joined += [ranks.join(rank) for rank in (1, 0)]
    assert len({each.wait() for each in joined}) == 1
    for pending in [ask(rank) for rank in range(3)]:
        pending.wait()


def test_a_rank_that_ends_without_join_is_an_error() -> None:
    ranks = _core.Ranks(LAYOUTS["3"])
    joined = [ranks.join(rank) for rank in range(2)]
    ranks.stop(2)
    for pending in joined:
        with pytest.raises(_core.EngineError, match="Rank 2 has ended its session .* while hvd.join waited for it"):
            pending.wait()


def test_a_joined_rank_that_ends_is_an_error() -> None:
    ranks = _core.Ranks(LAYOUTS["3"])
    joined = [ranks.join(rank) for rank in range(2)]
    ranks.stop(1)
    for pending in joined:
        with pytest.raises(_core.EngineError, match="Rank 1 ended its session|was shut down"):
            pending.wait()
    with pytest.raises(_core.EngineError, match="Rank 1 ended its session"):
        ranks.allreduce(2, [np.ones(3, np.float32)], "name", SUM).wait()

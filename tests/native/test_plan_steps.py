"""Which gradients belong together: steps, places and content of plans, over ranks that are threads of this process."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests import native_module
from tests.native.layouts import LAYOUTS

_core = native_module.core()

SUM = 1
ELEMENTS = [700, 20, 3000]  # two buckets: of the first two, and of the last

over_layouts = pytest.mark.parametrize("layout", ["2", "1+1", "2+1"])


class Job:
    """Ranks that use plans as TensorFlow does: a run hands over the tensors of one step, and then waits for them."""

    def __init__(self, layout: str) -> None:
        self.size = len(LAYOUTS[layout])
        self.ranks = _core.Ranks(LAYOUTS[layout])
        self.runs = [0] * self.size

    def plan(self, key: str, elements: list[int] = ELEMENTS) -> list[int]:
        return [self.ranks.plan(rank, key, elements, SUM) for rank in range(self.size)]

    def begin(
        self, rank: int, plan: int, step: int, places: Any = None, elements: list[int] = ELEMENTS, **where: Any
    ) -> Begun:
        """Hands over the tensors at `places` (default: all) of a step, which make one run."""
        self.runs[rank] += 1
        return Begun(self, rank, plan, step, elements, {"run": self.runs[rank], **where}).add(
            range(len(elements)) if places is None else places
        )

    def step(self, plans: list[int], step: int, elements: list[int] = ELEMENTS, **where: Any) -> None:
        begun = [self.begin(rank, plans[rank], step, None, elements, **where) for rank in range(self.size)]
        for each in begun:
            each.check(range(self.size))


def values(elements: int, *key: int) -> np.ndarray:
    """Whole numbers, different for every key and place; their sums are exact."""
    offset = sum((3 + 2 * i) * part for i, part in enumerate(key))
    return ((np.arange(elements) * 7 + offset * 13) % 251 + 1).astype(np.float32)


class Begun:
    def __init__(self, job: Job, rank: int, plan: int, step: int, elements: list[int], where: dict[str, int]) -> None:
        self.job, self.rank, self.plan, self.of_step, self.elements, self.where = job, rank, plan, step, elements, where
        self.arrays: dict[int, np.ndarray] = {}
        self.pending: dict[int, Any] = {}

    def add(self, places: Any) -> Begun:
        for place in places:
            array = values(self.elements[place], self.rank, self.of_step, place, self.plan)
            self.arrays[place] = array
            self.pending[place] = self.job.ranks.gradient(self.rank, self.plan, place, array, **self.where)
        return self

    def cancel(self) -> Begun:
        self.job.ranks.cancel(self.rank, self.plan, 0, self.where["run"])
        return self

    def check(self, ranks: Any) -> None:
        for place, pending in self.pending.items():
            pending.wait()
            expected = sum(values(self.elements[place], rank, self.of_step, place, self.plan) for rank in ranks)
            np.testing.assert_array_equal(self.arrays[place], expected, err_msg=f"tensor {place}, rank {self.rank}")

    def fails(self, match: str) -> None:
        for pending in self.pending.values():
            with pytest.raises(_core.EngineError, match=match):
                pending.wait()


@over_layouts
def test_places_of_one_plan_are_reduced_apart(layout: str) -> None:
    """Two calls of one traced function at the same time; every rank begins with another one."""
    job = Job(layout)
    plan = job.plan("tape")
    for step in range(3):
        begun = []
        for rank in range(job.size):
            for site in (0, 1) if rank % 2 else (1, 0):
                begun.append(job.begin(rank, plan[rank], 10 * step + site, site=site))
        for each in begun:
            each.check(range(job.size))


@over_layouts
@pytest.mark.parametrize("second", [[0], [2], [0, 1, 2]])
def test_a_second_run_while_the_first_is_under_way_is_refused(layout: str, second: list[int]) -> None:
    job = Job(layout)
    plan = job.plan("tape")
    job.step(plan, step=0)
    first = job.begin(0, plan[0], 1, places=[0, 1])
    other = job.begin(0, plan[0], 2, places=second)
    first.fails("arrived again while its last reduction was under way")
    other.fails("arrived again while its last reduction was under way")


def test_a_tensor_that_comes_twice_without_a_run_is_refused() -> None:
    job = Job("2")
    plan = job.plan("tape")
    first, again = (job.begin(0, plan[0], step, places=[1], run=0) for step in (1, 2))
    for each in (first, again):
        each.fails("arrived again while its last reduction was under way")


@over_layouts
@pytest.mark.parametrize("came", [[[0], [0]], [[0, 2], [1]], [[0, 1, 2], [1]]])
def test_a_step_that_all_ranks_give_up_is_an_error_and_the_next_one_is_right(layout: str, came: Any) -> None:
    """On each rank it fails at another moment: before other tensors have been handed over, or before none."""
    job = Job(layout)
    plan = job.plan("tape")
    for step in range(0, 6, 2):
        begun = [job.begin(rank, plan[rank], step, came[min(rank, 1)]).cancel() for rank in range(job.size)]
        for each in begun:
            each.fails("gave up a step")
        job.step(plan, step + 1)


@over_layouts
def test_a_step_that_one_rank_gives_up_is_an_error_on_all(layout: str) -> None:
    job = Job(layout)
    plan = job.plan("tape")
    job.step(plan, step=0)
    begun = [job.begin(rank, plan[rank], 1, [0] if rank == 0 else None) for rank in range(job.size)]
    begun[0].cancel()
    for each in begun:
        each.fails("Rank 0 gave up a step")
    job.step(plan, step=2)


@over_layouts
def test_a_run_that_was_broken_off_unnoticed_does_not_shift_the_next_ones(layout: str) -> None:
    """Nothing of the run was under way any more when it failed: the next run shows it, on some ranks alone."""
    job = Job(layout)
    plan = job.plan("tape", [5000, 5000, 20])  # buckets of their own
    sizes = [5000, 5000, 20]
    job.step(plan, 0, sizes)
    job.step(plan, 1, sizes)
    begun = [job.begin(rank, plan[rank], 2, [0], sizes) for rank in range(job.size)]
    for each in begun:
        each.check(range(job.size))
    late = [job.begin(rank, plan[rank], 2, [1, 2], sizes, run=job.runs[rank]) for rank in range(1, job.size)]
    after = job.begin(0, plan[0], 3, None, sizes)
    for each in late:
        each.fails("Rank 0 gave up a step")
    others = [job.begin(rank, plan[rank], 3, None, sizes) for rank in range(1, job.size)]
    for each in (after, *others):
        each.check(range(job.size))


def test_what_comes_too_late_for_a_step_that_was_given_up() -> None:
    job = Job("2")
    plan = job.plan("tape")
    begun = [job.begin(rank, plan[rank], 0, [0]).cancel() for rank in range(2)]
    for each in begun:
        each.fails("gave up a step")
    late = job.begin(0, plan[0], 0, [1], run=job.runs[0])
    late.fails("gave up a step")
    job.step(plan, step=1)


@over_layouts
def test_a_step_that_failed_unnoticed_on_one_rank_and_noticed_on_another(layout: str) -> None:
    """Rank 0 has nothing under way when its step fails, and calls something else afterwards."""
    job = Job(layout)
    sizes = [5000, 5000, 20]  # buckets of their own
    plan = job.plan("tape", sizes)
    job.step(plan, 0, sizes)
    job.step(plan, 1, sizes)
    begun = [job.begin(rank, plan[rank], 2, [0] if rank == 0 else [0, 1], sizes) for rank in range(job.size)]
    for each in begun:
        each.pending.pop(0).wait()
    flags = [values(10, rank) for rank in range(job.size)]
    flag = job.ranks.allreduce(0, [flags[0]], "flag", SUM)
    for each in begun[1:]:
        each.cancel().fails("gave up a step")
    others = [job.ranks.allreduce(rank, [flags[rank]], "flag", SUM) for rank in range(1, job.size)]
    for pending in [flag, *others]:
        pending.wait()
    job.step(plan, 3, sizes)


def test_a_step_that_no_rank_can_end_any_more_ends_the_session() -> None:
    """Rank 0 has failed unnoticed and waits elsewhere; rank 1 has failed with all its gradients on their way."""
    job = Job("2")
    plan = job.plan("tape")
    job.step(plan, step=0)
    begun = [job.begin(rank, plan[rank], 1, [0, 1] if rank == 0 else None) for rank in range(2)]
    for each in begun:
        for place in (0, 1):
            each.pending.pop(place).wait()
    array = values(10, 0)
    flag = job.ranks.allreduce(0, [array], "flag", SUM)
    begun[1].cancel().fails("Rank 1 gave up a step")
    with pytest.raises(_core.EngineError, match="Rank 1 gave up a step"):
        flag.wait()


def test_a_step_that_is_given_up_waits_for_a_rank_that_is_late() -> None:
    """Rank 1 writes a checkpoint, for instance: nothing is lost."""
    job = Job("2")
    plan = job.plan("tape")
    job.step(plan, step=0)
    given_up = job.begin(0, plan[0], 1, [0]).cancel()
    time.sleep(7)  # longer than a deadlock would last
    late = job.begin(1, plan[1], 1)
    for each in (given_up, late):
        each.fails("Rank 0 gave up a step")
    job.step(plan, step=2)


@over_layouts
def test_a_step_that_failed_before_a_join_is_an_error_on_the_others(layout: str) -> None:
    """With zeros in the place of what never came it would pass for a good one."""
    job = Job(layout)
    plan = job.plan("tape")
    job.step(plan, step=0)
    begun = [job.begin(rank, plan[rank], 1, [0, 1] if rank == 0 else None) for rank in range(job.size)]
    for each in begun:
        for place in (0, 1):
            each.pending.pop(place).wait()
    joins = [job.ranks.join(0)]
    for each in begun[1:]:
        each.fails("Rank 0 gave up a step")
    joins += [job.ranks.join(rank) for rank in range(1, job.size)]
    for join in joins:
        join.wait()
    job.step(plan, step=2)


def test_a_gradient_that_comes_after_a_join_is_an_error() -> None:
    """Zeros are in its place: it has no sum."""
    job = Job("2")
    plan = job.plan("tape")
    job.step(plan, step=0)
    begun = job.begin(0, plan[0], 1, [0])
    joins = [job.ranks.join(0)]
    other = job.begin(1, plan[1], 1)
    late = job.begin(0, plan[0], 1, [1], run=job.runs[0])
    joins.append(job.ranks.join(1))
    for join in joins:
        join.wait()
    late.fails("arrived after hvd.join")
    for each in (begun, other):
        for pending in each.pending.values():
            pending.wait()
    job.step(plan, step=2)


@over_layouts
def test_plans_are_matched_by_what_they_are(layout: str) -> None:
    """One rank registers, and another also uses, plans of the same key in another order."""
    job = Job(layout)
    large, small = [ELEMENTS, ELEMENTS[:2]]
    for rank in range(job.size):
        order = (large, small) if rank % 2 else (small, large)
        for elements in order:
            job.ranks.plan(rank, "tape", elements, SUM)
    job.ranks.plan(0, "tape", [1, 2, 3], SUM)  # traced and never run
    plans = {id(elements): job.plan("tape", elements) for elements in (large, small)}
    begun = []
    for rank in range(job.size):
        for elements in (large, small) if rank % 2 else (small, large):
            begun.append(job.begin(rank, plans[id(elements)][rank], 4, None, elements, alone=False))
    for each in begun:
        each.check(range(job.size))


@over_layouts
def test_other_plans_of_a_key_are_an_error_when_each_is_alone(layout: str) -> None:
    job = Job(layout)
    plans = [job.ranks.plan(rank, "tape", [700 + rank // (job.size - 1)], SUM) for rank in range(job.size)]
    for _ in range(2):  # again and again
        begun = [job.begin(rank, plans[rank], 0, None, [700 + rank // (job.size - 1)]) for rank in range(job.size)]
        for each in begun:
            each.fails(r"Mismatched gradient plans: rank 0 has 'tensor 0: float32 \[700\]', rank .* \[701\]'")
    job.step(job.plan("tape"), step=1)


@over_layouts
def test_numbers_of_plans_are_given_back(layout: str) -> None:
    """More plans than there are numbers, as in a search for hyperparameters; the first ones are used again."""
    job = Job(layout)
    shapes = [[n + 1, 3] for n in range(1100)]
    for n, shape in enumerate(shapes):
        job.step(job.plan("optimizer", shape), n, shape)
    assert all(job.ranks.plans(rank) < 800 for rank in range(job.size))
    for n, shape in enumerate(shapes[:300]):
        job.step(job.plan("optimizer", shape), n + 5, shape)
    assert all(job.ranks.plans(rank) < 800 for rank in range(job.size))


def test_plans_in_use_keep_their_numbers() -> None:
    """More plans than a search for hyperparameters may leave behind, but all of them in every step."""
    job = Job("2")
    shapes = [[n + 1] for n in range(400)]
    plans = [job.plan("one gradient", shape) for shape in shapes]
    for step in range(3):
        for n, shape in enumerate(shapes):
            job.step(plans[n], step + n, shape)
        assert [job.ranks.plans(rank) for rank in range(2)] == [400, 400]


def test_a_plan_is_kept_while_a_rank_uses_it() -> None:
    """A step of the oldest plan has begun on one rank while many others come and go."""
    job = Job("2")
    oldest = job.plan("oldest")
    job.step(oldest, step=0)
    begun = job.begin(0, oldest[0], 1, [0, 1])
    waiting = job.begin(1, oldest[1], 1, [1])
    for n in range(900):
        job.step(job.plan("optimizer", [n + 1]), n, [n + 1])
    begun.add([2])
    waiting.add([0, 2])
    for each in (begun, waiting):
        each.check(range(2))


@pytest.mark.parametrize("name", ["a", "b", "c"])  # coordinated by different ranks
@over_layouts
def test_a_request_that_was_given_up_does_not_meet_the_next_step(layout: str, name: str) -> None:
    """Rank 0 asks for it, and its step fails; on the others the step fails before. Then all go on."""
    job = Job(layout)

    def ask(rank: int, step: int) -> tuple[np.ndarray, Any]:
        array = values(5000, rank, step)
        return array, job.ranks.allreduce(rank, [array], name, SUM)

    _, given_up = ask(0, step=1)
    job.ranks.cancel_named(0, name)
    with pytest.raises(_core.EngineError, match="Rank 0 gave up a step"):
        given_up.wait()
    for _, refused in [ask(rank, step=2) for rank in range(1, job.size)]:
        with pytest.raises(_core.EngineError, match="Rank 0 gave up a step"):
            refused.wait()
    for step in (3, 4):
        asked = [ask(rank, step) for rank in range(job.size)]
        for array, pending in asked:
            pending.wait()
            np.testing.assert_array_equal(array, sum(values(5000, rank, step) for rank in range(job.size)))


def test_a_request_that_ended_well_is_not_given_up_in_the_next_step() -> None:
    job = Job("2")
    for step in range(2):
        arrays = [values(5000, rank, step) for rank in range(2)]
        first = job.ranks.allreduce(0, [arrays[0]], "again", SUM)
        if step == 0:
            job.ranks.cancel_named(0, "again")
        else:
            time.sleep(0.6)  # longer than a cancelled request is left alone
        for each in (first, job.ranks.allreduce(1, [arrays[1]], "again", SUM)):
            each.wait()
        np.testing.assert_array_equal(arrays[1], values(5000, 0, step) + values(5000, 1, step))


def test_a_request_that_is_given_up_when_all_have_come_ends_well() -> None:
    job = Job("2")
    arrays = [values(5000, rank) for rank in range(2)]
    pending = [job.ranks.allreduce(rank, [arrays[rank]], "late", SUM) for rank in range(2)]
    job.ranks.cancel_named(0, "late")
    for each in pending:
        each.wait()
    np.testing.assert_array_equal(arrays[0], values(5000, 0) + values(5000, 1))

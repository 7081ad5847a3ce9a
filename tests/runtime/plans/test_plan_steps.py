"""Which gradients belong together: the places and steps of plans, and steps that fail, over ranks that are threads."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests import native_module
from tests.support.plan_job import SUM, Job, over_layouts, values

pytestmark = pytest.mark.native

_core = native_module.core()


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
    for each in begun[1:]:
        each.fails_after(0)
    begun[0].fails("Rank 0 gave up a step")
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
        each.fails_after(0)
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
        each.fails_after(0)
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

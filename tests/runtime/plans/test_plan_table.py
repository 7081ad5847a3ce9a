"""Which plans are the same on all ranks, and the numbers that plans get and give back."""

from __future__ import annotations

import pytest

from tests.support.plan_job import ELEMENTS, SUM, Job, over_layouts

pytestmark = pytest.mark.native


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

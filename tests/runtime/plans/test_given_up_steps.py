"""Runs that begin and bring nothing: the ranks that wait for them get an error, and the next step is right."""

from __future__ import annotations

import numpy as np
import pytest

from tests import native_module
from tests.reasons import raises
from tests.support.plan_job import SUM, Begun, Job, over_layouts, values

pytestmark = pytest.mark.native

_core = native_module.core()


@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize("first", [0, 2])  # the step that fails
@over_layouts
def test_a_plan_of_which_a_run_brings_nothing(layout: str, first: int, failures: int) -> None:
    job = Job(layout)
    plans = job.plan("early")
    late = job.size - 1
    for step in range(first):
        job.step(plans, step)
    waiting: list[Begun] = []
    for step in range(first, first + failures):
        job.runs[late] += 1
        job.ranks.begin(late, plans[late], job.runs[late])
        for each in waiting:
            each.fails_after(late)
        waiting = [job.begin(rank, plans[rank], step) for rank in range(late)]
    job.ranks.begin(late, plans[late], job.runs[late] + 1)
    for each in waiting:
        each.fails_after(late)
    for step in range(7, 10):
        job.step(plans, step)


@pytest.mark.parametrize("name", ["a", "b", "c"])  # coordinated by different ranks
@over_layouts
def test_a_request_that_a_run_does_not_make(layout: str, name: str) -> None:
    job = Job(layout)
    late = job.size - 1
    for step in range(4):
        if step != 2:  # which has begun below
            job.ranks.begin_named(late, name)
        arrays = [values(5000, rank, step) for rank in range(job.size)]
        asking = range(late if step == 1 else job.size)
        pending = [job.ranks.allreduce(rank, [arrays[rank]], name, SUM) for rank in asking]
        if step == 1:
            job.ranks.begin_named(late, name)
            for each in pending:
                with raises(_core.EngineError, "step_given_up", match=f"Rank {late} "):
                    each.wait()
            continue
        for rank in asking:
            pending[rank].wait()
            np.testing.assert_array_equal(arrays[rank], sum(values(5000, each, step) for each in range(job.size)))


def test_a_run_that_brings_nothing_before_a_join() -> None:
    """With zeros in its place the step would look successful."""
    job = Job("2")
    plans = job.plan("join")
    job.step(plans, 0)
    waiting = job.begin(0, plans[0], 1)
    job.ranks.begin(1, plans[1], run=2)
    joins = [job.ranks.join(1)]
    waiting.fails("Rank 1 ")
    joins.append(job.ranks.join(0))
    for each in joins:
        each.wait()

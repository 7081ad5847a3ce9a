"""Requests that a rank gives up: none of them meets a request of the next step."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests import native_module
from tests.reasons import raises
from tests.support.plan_job import SUM, Job, over_layouts, values

pytestmark = pytest.mark.native

_core = native_module.core()


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
    with raises(_core.EngineError, "step_given_up", match="Rank 0 "):
        given_up.wait()
    for _, refused in [ask(rank, step=2) for rank in range(1, job.size)]:
        with raises(_core.EngineError, "step_given_up", match="Rank 0 "):
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

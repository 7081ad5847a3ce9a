"""The order in which a rank steps the collectives that are under way."""

from __future__ import annotations

import pytest

from tests import native_module

pytestmark = pytest.mark.native

_core = native_module.core()

NOT_PLANNED = None


def ends(*tasks: int | None) -> list[int]:
    return _core.ends_of_tasks(list(tasks))


def bucket(plan: int, number: int) -> int:
    return _core.planned_operation(plan, number)


def test_buckets_of_a_plan_are_stepped_in_its_order_whichever_came_first():
    assert ends(bucket(3, 2), bucket(3, 0), bucket(3, 1)) == [1, 2, 0]


def test_what_came_first_stays_first_between_plans_and_other_tasks():
    assert ends(bucket(1, 5), NOT_PLANNED, bucket(1, 2), bucket(0, 9), bucket(0, 4), NOT_PLANNED, bucket(0, 7)) == [
        0, 1, 2, 4, 3, 5, 6,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ahead", "they_move", "expected"),
    [
        (2, False, 1),  # the first three are stepped in every round
        (3, False, 9),  # all, after eight rounds in which nothing moved
        (50, False, 9),
        (1, True, 1),  # a round ends when two have moved
        (2, True, 32),  # every 32nd steps all
        (50, True, 32),
    ],
)
def test_a_task_behind_others_does_not_wait_long(ahead: int, they_move: bool, expected: int):
    assert _core.round_of_last_task(ahead, they_move) == expected

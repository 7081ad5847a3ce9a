"""The order in which a rank steps the collectives that are under way."""

from __future__ import annotations

from tests import native_module

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

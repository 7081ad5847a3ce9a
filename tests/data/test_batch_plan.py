"""plan_batch for a number of ranks that is given: passes, remainders, the token budget, wrong arguments."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from smddp_tf.data.batch_plan import plan_batch


def test_the_parts_make_up_the_whole() -> None:
    """For all small jobs: nothing exceeds what was asked, passes are as few as possible, samples are all counted."""
    for size, asked, largest, samples in itertools.product((1, 2, 3, 5), (5, 16, 61), (1, 4, 64), (3, 100)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = plan_batch(global_batch=asked, largest_per_rank=largest, samples=samples, size=size)
        assert plan.ranks * plan.batch_size * plan.passes == plan.global_batch <= asked
        assert asked - plan.global_batch < size * plan.passes
        assert plan.batch_size <= largest
        assert plan.passes == 1 or (plan.passes - 1) * largest < asked // size
        assert plan.steps_per_epoch is not None
        assert plan.steps_per_epoch % plan.passes == 0
        updates = plan.steps_per_epoch // plan.passes
        assert updates * plan.global_batch + (plan.remainder or 0) == samples
        assert bool(plan.notes) == (plan.global_batch != asked or updates == 0)


def test_what_a_rank_and_what_all_ranks_have_is_the_same_plan() -> None:
    of_rank = plan_batch(per_rank=np.int64(64), samples=1000, largest_per_rank=16, size=3)
    assert of_rank == plan_batch(global_batch=192, samples=1000, largest_per_rank=16, size=3)
    assert str(of_rank).splitlines() == [
        "3 rank(s) x 16 samples x 4 pass(es) = 192",
        "20 steps an epoch, 40 samples left over",
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        of_rank.passes = 1  # type: ignore[misc]


def test_the_guide_s_example_exceeds_the_token_budget_and_half_of_it_does_not() -> None:
    """256 nodes of 8 GPUs with a sequence of 4,096 tokens each: 8 Mi; half as many of them: 4 Mi."""
    with pytest.warns(UserWarning, match="8388608 tokens, more than the budget of 4194304"):
        plan = plan_batch(per_rank=1, tokens=4096, size=256 * 8)
    assert (plan.tokens, len(plan.notes)) == (2**23, 1)
    assert "note: an update has 8388608 tokens" in str(plan)
    assert plan_batch(per_rank=1, tokens=4096, size=128 * 8).notes == ()
    assert plan_batch(per_rank=1, tokens=4096, size=256 * 8, token_budget=2**23).notes == ()


def test_what_does_not_divide_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="2 ranks x 17 passes do not divide 1001: an update has 986 samples"):
        assert plan_batch(global_batch=1001, largest_per_rank=30, size=2).global_batch == 986


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Pass either `global_batch` or `per_rank`"),
        ({"global_batch": 8, "per_rank": 4}, "Pass either"),
        ({"global_batch": 0}, "whole numbers, 1 or more. Received: {'global_batch': 0"),
        ({"per_rank": 2.5}, "whole numbers"),
        ({"per_rank": 2, "size": 0}, "whole numbers"),
        ({"per_rank": 2, "samples": "many"}, "whole numbers"),
        ({"global_batch": 3}, "must be 4 or more, a sample for each rank"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_batch(**{"size": 4, **arguments})

"""Buckets follow the order in which rank 0's gradients came in the first step, on all ranks from the same reduction on.

Ranks are threads that hand over gradients in orders and at a pace of their own; they may be steps apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from tests import native_module
from tests.support.layouts import LAYOUTS

pytestmark = pytest.mark.native

_core = native_module.core()

ELEMENTS = [700, 1, 2500, 0, 300, 1200, 40, 1024]  # of the tensors of a plan
TENSORS = len(ELEMENTS)
BUCKET_BYTES = 8192
STEPS = 5

over_layouts = pytest.mark.parametrize("layout", ["1", "2", "4", "2+1", "2+2", "1+1+1+1", "5+3"])


class Outcome(NamedTuple):
    data: np.ndarray  # by rank, step, and all elements of a step
    event_logs: list[list[tuple[str, str, int]]]  # by rank


def whole_numbers(ranks: int, plans: int) -> np.ndarray:
    """Different for every rank, step and place; their sums are exact."""
    place = np.arange(STEPS * plans * sum(ELEMENTS)).reshape(STEPS, -1)
    return np.stack([(place * 7 + rank * 13) % 1009 for rank in range(ranks)]).astype(np.float32)


def step_by_step(rng: np.random.Generator, ranks: int, plans: int = 1) -> list[list[int]]:
    """Every rank and step has another order."""
    return [np.concatenate([rng.permutation(plans * TENSORS) for _ in range(STEPS)]).tolist() for _ in range(ranks)]


def run(
    layout: str,
    data: np.ndarray,
    sequences: list[list[int]],
    plans: int = 1,
    wait_every: int = 0,
    pause_us: int = 0,
    seed: int = 0,
    gradient_order: str = "observed",
    rail_algorithm: str = "auto",
) -> Outcome:
    result = data.copy()
    event_logs = _core.cluster_steps(
        LAYOUTS[layout], ELEMENTS, plans, [of_rank.reshape(-1) for of_rank in result], sequences, BUCKET_BYTES,
        wait_every, pause_us, seed, gradient_order, rail_algorithm,
    )  # fmt: skip
    return Outcome(result, event_logs)


def check_sums(outcome: Outcome, data: np.ndarray) -> None:
    for rank, of_rank in enumerate(outcome.data):
        np.testing.assert_array_equal(of_rank, data.sum(axis=0), err_msg=f"rank {rank}")


def rows(events: list[tuple[str, str, int]], what: str, plan: int = 0) -> list[int]:
    return [index for event, name, index in events if (event, name) == (what, f"steps {plan}")]


@over_layouts
@pytest.mark.parametrize("gradient_order", ["observed", "listed"])
def test_sums_when_every_rank_has_another_order_in_every_step(layout: str, gradient_order: str) -> None:
    ranks = len(LAYOUTS[layout])
    for seed in range(3):
        data = whole_numbers(ranks, plans=1)
        sequences = step_by_step(np.random.default_rng(seed), ranks)
        outcome = run(
            layout, data, sequences, wait_every=TENSORS, pause_us=200, seed=seed, gradient_order=gradient_order
        )
        check_sums(outcome, data)


@over_layouts
def test_several_plans_at_once(layout: str) -> None:
    ranks, plans = len(LAYOUTS[layout]), 3
    for wait_every in (0, plans * TENSORS):
        data = whole_numbers(ranks, plans)
        sequences = step_by_step(np.random.default_rng(wait_every), ranks, plans)
        outcome = run(layout, data, sequences, plans, wait_every, pause_us=20)
        check_sums(outcome, data)
        first = sequences[0][: plans * TENSORS]
        for plan in range(plans):
            expected = [item % TENSORS for item in first if item // TENSORS == plan]
            assert all(rows(events, "plan_order", plan) == expected for events in outcome.event_logs)


@over_layouts
def test_all_ranks_adopt_the_order_of_rank_0(layout: str) -> None:
    ranks = len(LAYOUTS[layout])
    sequences = step_by_step(np.random.default_rng(1), ranks)
    sequences[0] = sequences[0][:TENSORS] * STEPS
    order = sequences[0][:TENSORS]
    outcome = run(layout, whole_numbers(ranks, 1), sequences, wait_every=TENSORS)
    listed = _core.buckets_of_steps(ELEMENTS, BUCKET_BYTES)
    observed = _core.buckets_of_steps(ELEMENTS, BUCKET_BYTES, order)
    assert len(listed) > 1
    assert observed != listed
    for rank, events in enumerate(outcome.event_logs):
        assert rows(events, "plan_order") == order
        started = rows(events, "bucket_start")
        assert len(started) == len(listed) + (STEPS - 1) * len(observed), f"rank {rank}"
    # On rank 0 the tensors keep coming in that order, so its buckets start one after the other.
    assert rows(outcome.event_logs[0], "bucket_start")[len(listed) :] == list(range(len(observed))) * (STEPS - 1)


@pytest.mark.parametrize("layout", ["2", "2+2"])
def test_the_listed_order_is_kept_when_asked_for_or_without_choice(layout: str) -> None:
    ranks = len(LAYOUTS[layout])
    sequences = step_by_step(np.random.default_rng(2), ranks)
    listed = run(layout, whole_numbers(ranks, 1), sequences, wait_every=TENSORS, gradient_order="listed")
    in_list_order = [list(range(TENSORS)) * STEPS] * ranks
    observed = run(layout, whole_numbers(ranks, 1), in_list_order, wait_every=TENSORS)
    for events in (*listed.event_logs, *observed.event_logs):
        assert not rows(events, "plan_order")


@pytest.mark.parametrize("rail_algorithm", ["direct", "ring", "recursive_doubling", "halving_doubling"])
@pytest.mark.parametrize("layout", ["4", "1+4+2", "1+1+1+1", "2+2+2+2"])
def test_the_same_bits_whatever_the_order(layout: str, rail_algorithm: str) -> None:
    """Delays and orders differ from run to run, and with them the buckets, and who sums what: the sums do not."""
    ranks = len(LAYOUTS[layout])
    data = np.random.default_rng(3).standard_normal((ranks, STEPS, sum(ELEMENTS))).astype(np.float32)
    results = []
    for seed, gradient_order in ((1, "listed"), (2, "observed"), (3, "observed"), (4, "observed")):
        sequences = step_by_step(np.random.default_rng(seed), ranks)
        outcome = run(
            layout, data, sequences, wait_every=TENSORS, pause_us=300, seed=seed, gradient_order=gradient_order,
            rail_algorithm=rail_algorithm,
        )  # fmt: skip
        results.append(outcome.data)
    for result in results:
        assert result.tobytes() == results[0].tobytes()
    assert all(of_rank.tobytes() == results[0][0].tobytes() for of_rank in results[0])

"""How our tags of 29 bits fit MPI's, which are shorter over UCX: the upper bits choose a communicator."""

from __future__ import annotations

import itertools

import pytest

from tests.native_module import core

pytestmark = pytest.mark.native

OPERATION_BITS, STAGES, STEPS = 24, 4, 8
UCX = (1 << 23) - 1  # its MPI_TAG_UB
LARGEST = [(1 << 31) - 1, (1 << 29) - 1, (1 << 29) - 2, UCX + 1, UCX, UCX - 1, (1 << 20) - 1]
NEAR_POWERS = {(1 << bit) + away for bit in range(OPERATION_BITS) for away in (-1, 0, 1)}
OPERATIONS = sorted(NEAR_POWERS | {(1 << OPERATION_BITS) - 1})


@pytest.mark.parametrize(
    ("largest", "expected"), list(zip(LARGEST, [1, 1, 2, 64, 64, 128, 512])), ids=[hex(largest) for largest in LARGEST]
)
def test_as_few_communicators_as_possible(largest: int, expected: int) -> None:
    assert core().tag_communicators(largest) == expected


@pytest.mark.parametrize("largest", LARGEST, ids=hex)
def test_every_message_has_a_place_of_its_own(largest: int) -> None:
    """Steps of a stage, stages of an operation, neighbouring operations, and the control messages."""
    messages = list(itertools.product(OPERATIONS, range(STAGES), range(STEPS)))[:-1]  # the last is never given out
    places = [core().split_tag(largest, *message) for message in messages] + [core().control_tag(largest)]
    assert len(set(places)) == len(messages) + 1
    assert {communicator for communicator, _ in places} <= set(range(core().tag_communicators(largest)))
    assert min(tag for _, tag in places) >= 0
    assert max(tag for _, tag in places) <= largest


def test_tags_of_ucx() -> None:
    assert core().split_tag(UCX, 0x123456, 2, 5) == (0x123456 >> 18, (0x123456 & 0x3FFFF) << 5 | 2 << 3 | 5)
    assert core().control_tag(UCX) == (63, UCX)


def test_a_step_counts_by_its_low_bits() -> None:
    assert core().split_tag(UCX, 7, 1, 11) == core().split_tag(UCX, 7, 1, 3)

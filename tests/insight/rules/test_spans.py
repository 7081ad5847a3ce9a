"""From when to when something lasts, by blocks of ten steps."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf.insight.rules.spans import Span, blocks, longest_run


def late(*numbers: int) -> np.ndarray:
    """Of eight blocks, those with these numbers."""
    return np.isin(np.arange(8), numbers)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((), (0, 0)),
        ((5,), (5, 6)),
        ((0, 1, 4, 5, 6), (4, 7)),
        ((1, 2, 4, 5), (1, 6)),  # one between them does not end it
        ((0, 1, 4), (0, 2)),  # two do
        ((0, 3, 7), (0, 1)),  # of equal ones the first
        ((6, 7), (6, 8)),
    ],
)
def test_the_longest_run(numbers: tuple[int, ...], expected: tuple[int, int]) -> None:
    assert longest_run(late(*numbers)) == Span(*expected, 8)


def test_blocks_leave_out_what_fills_none() -> None:
    rows = np.stack([np.arange(27.0), 100 + np.arange(27.0)])
    np.testing.assert_array_equal(blocks(rows), [[4.5, 14.5], [104.5, 114.5]])
    np.testing.assert_array_equal(blocks(rows, np.max), [[9, 19], [109, 119]])


def test_the_last_block_takes_the_steps_that_fill_none() -> None:
    steps = np.arange(87)
    assert steps[Span(2, 5, 8).steps].tolist() == list(range(20, 50))
    assert steps[Span(2, 8, 8).steps].tolist() == list(range(20, 87))
    assert np.arange(8)[Span(2, 5, 8).blocks].tolist() == [2, 3, 4]


def test_figures_name_the_numbers_of_steps() -> None:
    """Half a block before and behind: the median of a block changes when half of its steps have."""
    numbers = 1000 + np.arange(87)
    figures = Span(2, 5, 8).figures(numbers)
    assert (figures["since"], figures["until"]) == ((1015, 1025), (1045, 1055))
    assert figures["when"] == "from a step between 1015 and 1025 to one between 1045 and 1055"
    figures = Span(0, 5, 8).figures(numbers)
    assert figures["since"] == (0, 1005)
    assert figures["when"] == "from the beginning to one between 1045 and 1055"
    figures = Span(3, 8, 8).figures(numbers)
    assert (figures["until"], figures["when"]) == (None, "from a step between 1025 and 1035 to the end")
    assert Span(0, 8, 8).figures(numbers)["when"] == "in all steps"

"""Which variants of a test `make test-full` runs beside those of `make test`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import pytest

FULL = bool(os.environ.get("SMDDP_TEST_FULL"))
full = pytest.mark.skipif(not FULL, reason="run by make test-full")  # a test that takes long beside what it adds


def in_full(*values: object) -> tuple[object, ...]:
    """`values` under `make test-full`, otherwise nothing: for the arguments of `pytest.mark.parametrize`."""
    return values if FULL else ()


def combined(*factors: Sequence[object]) -> list[tuple[object, ...]]:
    """Arguments of several parameters that do not act on each other, for `pytest.mark.parametrize`.

    All combinations under `make test-full`; otherwise each value at least once: the n-th of one factor with the n-th
    of the others, where a factor with fewer values begins anew.
    """
    if FULL:
        return list(itertools.product(*factors))
    return [tuple(factor[i % len(factor)] for factor in factors) for i in range(max(map(len, factors)))]

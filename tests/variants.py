"""Which variants of a test `make test-full` runs beside those of `make test`."""

from __future__ import annotations

import os

import pytest

FULL = bool(os.environ.get("SMDDP_TEST_FULL"))
full = pytest.mark.skipif(not FULL, reason="run by make test-full")  # a test that takes long beside what it adds


def in_full(*values: object) -> tuple[object, ...]:
    """`values` under `make test-full`, otherwise nothing: for the arguments of `pytest.mark.parametrize`."""
    return values if FULL else ()

"""Which variants of a test `make test-full` runs beside those of `make test`."""

from __future__ import annotations

import os

FULL = bool(os.environ.get("SMDDP_TEST_FULL"))


def in_full(*values: object) -> tuple[object, ...]:
    """`values` under `make test-full`, otherwise nothing: for the arguments of `pytest.mark.parametrize`."""
    return values if FULL else ()

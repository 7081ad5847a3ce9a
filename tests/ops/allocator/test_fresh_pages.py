"""The memory of a large result is used again in the next step: nothing is mapped anew.

In a process of its own: at the end of a long series of other tests a process maps memory for other reasons.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2
LIMIT = 0.1  # of the result's pages, in a step


def test_no_fresh_pages_in_every_step(tmp_path: Path) -> None:
    launch([Path(__file__).with_name("fresh_pages.py"), tmp_path], RANKS, timeout=180).check()
    shares = read_records(tmp_path, RANKS)
    assert all(share < LIMIT for share in shares), f"shares of a result that were mapped anew in a step: {shares}"

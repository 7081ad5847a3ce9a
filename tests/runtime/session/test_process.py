"""One rank's Python threads share its session: init, collectives in any order, and shutdown under waiting threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

RANKS = 2


def test_threads_share_a_session(tmp_path: Path) -> None:
    output = launch([Path(__file__).with_name("threads.py"), tmp_path], RANKS, timeout=120).check().output
    for rank in range(RANKS):
        assert f"rank {rank} is through" in output, output

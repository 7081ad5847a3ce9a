"""One rank's Python threads share its session: init, collectives in any order, and shutdown under waiting threads."""

from __future__ import annotations

from tests.launch.mpirun import SCRIPTS, launch

RANKS = 2


def test_threads_share_a_session() -> None:
    output = launch([SCRIPTS / "threads.py"], RANKS, timeout=120).check().output
    for rank in range(RANKS):
        assert f"rank {rank} is through" in output, output

"""A program that sleeps costs nothing: ranks may share cores, so a spinning engine would slow down the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import SCRIPTS, launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2
SLEEP_SECONDS = 5.0
LIMIT = 0.02  # of one core, all threads but the main one together


@pytest.mark.parametrize("nodes", [1, 2], ids=["one node", "two pretended nodes"])
def test_engine_sleeps_when_there_is_nothing_to_do(nodes: int, tmp_path: Path) -> None:
    script = [
        SCRIPTS / "on_pretended_nodes.py",
        str(nodes),
        Path(__file__).with_name("idle.py"),
        tmp_path,
        str(SLEEP_SECONDS),
    ]
    launch(script, RANKS, timeout=120).check()
    for rank, used in enumerate(read_records(tmp_path, RANKS)):
        assert used, f"rank {rank} measured nothing"
        share = sum(used.values()) / SLEEP_SECONDS
        busiest = sorted(used.items(), key=lambda item: -item[1])[:5]
        assert share < LIMIT, f"rank {rank}: {100 * share:.1f}% of a core while asleep; busiest threads: {busiest}"

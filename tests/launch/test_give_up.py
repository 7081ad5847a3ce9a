"""A step that fails on one rank ends on all of them, although TensorFlow waits for our ops before it raises."""

from __future__ import annotations

from pathlib import Path

from tests.launch.mpirun import SCRIPTS, launch
from tests.launch.scripts.recorder import read_records

RANKS = 2
SOON_SECONDS = 15.0  # the engine waits 5 s, in case the step still ends well


def test_step_that_fails_on_one_rank_ends_on_all(tmp_path: Path) -> None:
    launch([SCRIPTS / "give_up.py", tmp_path], RANKS, timeout=120).check()
    records = read_records(tmp_path, RANKS)
    for rank in range(RANKS):
        assert records[rank]["good step"]["error"] == ""
        assert records[rank]["bad step"]["error"] != ""
        assert records[rank]["bad step"]["seconds"] < SOON_SECONDS
        assert "Rank 1 gave up a step" in records[rank]["afterwards"]["message"]
    assert "this batch has a zero" in records[1]["bad step"]["message"]
    assert "Rank 1 gave up a step" in records[0]["bad step"]["message"]

"""Whole jobs that are recorded: by the launcher's flag, from a script, with ranks that are killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.recordings import facts_of, lines_of
from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

SCRIPT = Path(__file__).with_name("recorded.py")


def test_the_launchers_flag(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "recording"
    job = ["-m", "smddp_tf.run", "-np", "2", "--monitor", folder, SCRIPT, "loop"]
    ended = launch(job, None, timeout=120).check().output
    assert re.search(r"^2 ranks on one host, 12 steps in \d+ s\.", ended, re.MULTILINE), ended
    assert f"Written: {folder / 'report.json'}" in ended
    facts = [facts_of(folder / f"rank-{rank:05d}.json") for rank in range(2)]
    for rank, each in enumerate(facts):
        assert each["ended"] > each["first_step"] > each["started"]
        steps = lines_of(folder / f"rank-{rank:05d}.steps.jsonl")
        assert [(step["samples"], step["epoch"]) for step in steps] == [(4 + rank, 0)] * 6 + [(4 + rank, 1)] * 6
    [host] = {path.name for path in folder.glob("host-*")}
    assert host == f"host-{facts[0]['host']}.jsonl"


def test_a_rank_that_is_killed_leaves_what_it_has_recorded(tmp_path: Path) -> None:
    finished = launch([SCRIPT, "killed"], 2, timeout=120, env={"SMDDP_MONITOR": str(tmp_path)})
    assert finished.returncode != 0
    assert not finished.timed_out
    for rank in range(2):
        steps = lines_of(tmp_path / f"rank-{rank:05d}.steps.jsonl")
        assert [step["step"] for step in steps] == list(range(6))
        assert len(lines_of(tmp_path / f"rank-{rank:05d}.process.jsonl")) >= 2
        facts = facts_of(tmp_path / f"rank-{rank:05d}.json")
        assert facts["ended"] is None
        assert (facts["node"], facts["nodes"]) == (rank, 2)
        assert facts["rail_bandwidth_mbps"] > 0
        assert facts["host"].endswith(f"-{rank}")
        assert len(lines_of(tmp_path / f"host-{facts['host']}.jsonl")) >= 2


@pytest.mark.one_process
def test_from_a_script_without_a_launcher(tmp_path: Path) -> None:
    output = launch([SCRIPT, "diagnose", tmp_path], None, timeout=90).check().output
    assert f"smddprun --diagnose {tmp_path}" in output
    steps = lines_of(tmp_path / "rank-00000.steps.jsonl")
    assert [step["epoch"] for step in steps] == [0] * 6 + [1] * 6


@pytest.mark.one_process
def test_who_does_not_ask_does_not_pay() -> None:
    code = "import sys, smddp_tf as h; h.init(); print([n for n in ('psutil', 'pynvml') if n in sys.modules])"
    assert "[]" in launch(["-c", code], None, timeout=60).check().output


def test_ranks_that_name_different_folders(tmp_path: Path) -> None:
    code = (
        "import os, smddp_tf as h; "
        f"os.environ['SMDDP_MONITOR'] = '{tmp_path}/' + os.environ['OMPI_COMM_WORLD_RANK']; h.init()"
    )
    finished = launch(["-c", code], 2, timeout=60)
    assert finished.returncode != 0
    assert "The folder to record in (SMDDP_MONITOR)" in finished.output, finished.output
    assert list(tmp_path.iterdir()) == []

"""An exception that nobody catches on one rank: the job ends, all name it, and its traceback is what is read last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

RANKS = 3
SENTENCE = (
    "has ended its session because of an uncaught exception: ValueError: rank 1 has a bug. "
    "Its traceback is in its own output."
)


def test_exception_of_one_rank(tmp_path: Path) -> None:
    finished = launch(
        [Path(__file__).with_name("exception_notice.py"), "raise", tmp_path / "output"], RANKS, timeout=120
    )
    output = (tmp_path / "output").read_text()
    assert finished.returncode == 1, output + finished.output
    assert not finished.timed_out, output
    for rank in range(RANKS):
        lines = [line for line in output.splitlines() if line.startswith(f"smddp_tf [rank {rank}] error: Rank 1 (host")]
        assert len(lines) == 1, output
        assert lines[0].endswith(SENTENCE), output
    assert output.count("Traceback") == 1, output
    last = output[output.index("Traceback") :]
    assert last.rstrip().endswith("ValueError: rank 1 has\na bug"), output
    assert "rank 1 has something to say" in output[: output.index("Traceback")], output
    assert "never printed" not in output, output


def test_exit_code_of_one_rank_is_the_jobs(tmp_path: Path) -> None:
    finished = launch([Path(__file__).with_name("exception_notice.py"), "exit", tmp_path / "output"], 2, timeout=120)
    output = (tmp_path / "output").read_text()
    assert finished.returncode == 3, output + finished.output
    assert "Rank 1 has ended its session" in output, output

"""The plugin that runs pytest under mpirun: failures reach all ranks, stuck jobs end. Uses mpi4py only, no engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import SCRIPTS, Finished, launch

pytestmark = pytest.mark.launches

LONG_SECONDS = 100  # the sleep of a rank that is stuck


def _run(selection: str, logs: Path, *more: str) -> Finished:
    cases = f"{SCRIPTS / 'plugin_cases.py'}::{selection}"
    arguments = ["-m", "pytest", cases, "-p", "tests.mpi_plugin", "-p", "no:cacheprovider", "--color=no"]
    return launch([*arguments, "--rank-logs", logs, *more], ranks=3, timeout=2 * LONG_SECONDS)


def test_outcomes_are_common(tmp_path: Path) -> None:
    finished = _run("TestOutcomes", tmp_path, "--pretend-nodes", "2,1")
    assert finished.returncode == 1, finished.output
    assert "ranks: 3 as pretended nodes of 2,1" in finished.output
    assert "rank one is bad" in finished.output  # although rank 0 did not see it
    assert "disagree about skipping: skipped, passed, passed" in finished.output
    assert "rank two has no fixture" in finished.output
    assert "must not be reached" not in finished.output
    summary = "2 failed, 1 passed, 1 error"
    assert summary in finished.output
    assert all(summary in (tmp_path / f"rank-{rank}.log").read_text() for rank in (1, 2))


def test_deadline_names_the_test_and_shows_the_stacks(tmp_path: Path) -> None:
    finished = _run("TestStuck", tmp_path)
    assert finished.returncode != 0
    assert not finished.timed_out
    assert "test_rank_2_sleeps took longer than 3 s" in finished.output
    assert "in test_rank_2_sleeps" in (tmp_path / "rank-2.log").read_text()
    assert finished.seconds < LONG_SECONDS


def test_dead_rank_ends_the_job(tmp_path: Path) -> None:
    finished = _run("TestDies", tmp_path)
    assert finished.returncode != 0
    assert not finished.timed_out
    assert finished.seconds < LONG_SECONDS


def test_rank_that_cannot_start_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "rank-1.log").mkdir()  # where rank 1 wants to write a file
    finished = _run("TestOutcomes", tmp_path)
    assert finished.returncode != 0
    assert not finished.timed_out
    assert "IsADirectoryError" in finished.output


def test_ranks_must_fill_the_pretended_nodes(tmp_path: Path) -> None:
    finished = _run("TestOutcomes", tmp_path, "--pretend-nodes", "2,2")
    assert finished.returncode != 0
    assert "--pretend-nodes 2,2 must add up to the 3 ranks of the job." in finished.output

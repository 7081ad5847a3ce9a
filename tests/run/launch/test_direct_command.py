"""The line of a job without MPI: when it is taken, what it says, and that it has no values."""

from __future__ import annotations

import json

import pytest

from smddp_tf.run.launch.direct_command import meeting_variables
from tests.run.run_dry import OPEN_MPI_5, DryRun, error_of


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys)


def plan_of(words: list[str]) -> tuple[list, list[str], list[str]]:
    """Hosts with their ranks, ssh's words, and the names of the variables that travel; no number for life."""
    assert not [word for word in words if "mpirun" in word]
    *plan, first = json.loads(words[-2])
    assert first is None
    return tuple(plan)  # type: ignore[return-value]


def test_here_and_on_other_hosts(dry_run: DryRun) -> None:
    words = dry_run("--no-mpi", "-np", "6", "-H", "h1:2,h2:3,far:4", "-p", "7", "-i", "/k", "-x", "OWN=s3cret", "t",
                    env={"GIVEN": "s3cret", "HOME": "/h", "PATH": "/bin"})  # fmt: skip
    hosts, ssh, forwarded = plan_of(words)
    assert hosts == [["", 2], ["h2", 3], ["far", 1]]
    assert ssh == ["ssh", "-o", "BatchMode=yes", "-p", "7", "-i", "/k"]
    assert {"GIVEN", "OWN", "PATH", "SMDDP_SECRET", "SMDDP_COORDINATOR"} <= set(forwarded)
    assert "HOME" not in forwarded
    assert words[:2] == ["PYTHONUNBUFFERED=1", "OWN=s3cret"]  # of the launcher itself
    assert "s3cret" not in " ".join(words[2:])
    assert words[-1] == "t"


@pytest.mark.parametrize("flags", [["--gloo"], ["--no-mpi"], []])
def test_without_an_mpirun_too(dry_run: DryRun, flags: list[str]) -> None:
    dry_run.mpi = None if not flags else OPEN_MPI_5
    assert plan_of(dry_run(*flags, "-np", "2", "t"))[0] == [["", 2]]


@pytest.mark.parametrize("needs", [["--mpi"], ["--mpi-args", "-v"], ["--fabric", "ofi"], ["--binding-args", "-b"]])
def test_what_needs_an_mpirun_does_not_go_on_without(monkeypatch, capsys, needs: list[str]) -> None:
    dry_run = DryRun(monkeypatch, capsys)
    dry_run.mpi = None
    with pytest.raises(AssertionError, match="There is no mpirun"):
        dry_run("-np", "2", *needs, "t")
    if "--mpi" not in needs:
        assert f"--no-mpi and {needs[0]}" in error_of(capsys, "-np", "2", "--no-mpi", *needs, "true")


def test_each_job_has_a_secret_of_its_own() -> None:
    one, other = (meeting_variables("h1", "4711") for _ in range(2))
    assert one["SMDDP_COORDINATOR"] == other["SMDDP_COORDINATOR"] == "h1:4711"
    assert len({one["SMDDP_SECRET"], other["SMDDP_SECRET"]}) == 2
    assert min(map(len, (one["SMDDP_SECRET"], other["SMDDP_SECRET"]))) == 64

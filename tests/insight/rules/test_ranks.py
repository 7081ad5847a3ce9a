"""The rules that compare ranks, on written recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.insight.rules.faults import Fault, fires_alone, only_finding
from tests.insight.written_recording import WrittenRecording


def late_from_the_middle(job: WrittenRecording) -> None:
    job.computation[2, 300:] += 0.2


def late_input(job: WrittenRecording) -> None:
    job.input[1, 150:450] += 0.3


def slow_host(job: WrittenRecording) -> None:
    job.computation[2:] *= 1.4


FAULTS: dict[str, Fault] = {
    "late_from_the_middle": (late_from_the_middle, 0, {("LateRank", "node-1", 2)}),
    "late_input": (late_input, 2, {("LateRank", "node-0", 1)}),
    "slow_host": (slow_host, 0, {("DifferentSpeeds", "node-1", None)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_rule_and_no_other(fault: str, tmp_path: Path) -> None:
    fires_alone(FAULTS[fault], tmp_path)


@pytest.mark.parametrize("onset", range(220, 231))
def test_late_rank_says_since_when_and_by_how_much(onset: int, tmp_path: Path) -> None:
    """Whatever its place in a block of ten steps is, the first late step is one of those that are printed."""
    job = WrittenRecording(hosts=1, local=3)
    job.computation[1, onset:] += 0.2
    found = only_finding(job, tmp_path)
    assert found.rank == 1
    assert found.case == "computation"
    first, last = found.figures["since"]
    assert first <= onset <= last <= first + 10
    assert found.step == first
    assert found.figures["mine"] - found.figures["others"] == pytest.approx(200, abs=10)
    assert found.figures["wait"] - found.figures["exposed"] == pytest.approx(200, abs=10)
    assert found.lost == pytest.approx(0.2 * (600 - onset) / (0.45 * onset + 0.65 * (600 - onset)), rel=0.05)
    assert f"Late from a step between {first} and {last} to the end: " in found.evidence
    assert f"They wait {found.figures['wait']:.1f} ms for gradients, rank 1 waits " in found.evidence


def test_late_rank_says_until_when(tmp_path: Path) -> None:
    job = WrittenRecording(hosts=2, local=1)
    job.input[0, 100:400] += 0.3
    found = only_finding(job, tmp_path)
    assert (found.rank, found.case) == (0, "input")
    (since, begun), (until, ended) = found.figures["since"], found.figures["until"]
    assert since <= 100 <= begun
    assert until <= 400 <= ended
    assert f"from a step between {since} and {begun} to one between {until} and {ended}" in found.evidence


def test_late_rank_from_the_beginning(tmp_path: Path) -> None:
    job = WrittenRecording(hosts=1, local=3)
    job.computation[2] += 0.2
    found = only_finding(job, tmp_path)
    assert (found.step, found.figures["until"]) == (0, None)
    assert "Late in all steps: " in found.evidence

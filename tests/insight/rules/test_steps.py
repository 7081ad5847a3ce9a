"""The rules on the lengths of steps, on written recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.insight.rules.faults import Fault, fires_alone, only_finding
from tests.insight.written_recording import WrittenRecording


def slow_start(job: WrittenRecording) -> None:
    job.initialization += 1300 + np.arange(len(job.initialization))


def long_steps(job: WrittenRecording) -> None:
    """One in fifty, because of one rank."""
    job.computation[3, 25::50] += 2.0


def stall(job: WrittenRecording) -> None:
    job.exposed[0, 400] += 2000
    job.ended = False


FAULTS: dict[str, Fault] = {
    "slow_start": (slow_start, 0, {("MaxInitializationTime", "node-1", 3)}),
    "long_steps": (long_steps, 0, {("StepOutlier", "node-1", 3)}),
    "stall": (stall, 0, {("StalledTraining", "node-0", 0)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_rule_and_no_other(fault: str, tmp_path: Path) -> None:
    fires_alone(FAULTS[fault], tmp_path)


def test_step_outlier_says_who_what_and_how_often(tmp_path: Path) -> None:
    job = WrittenRecording()
    job.input[2, 7::40] += 3.0
    found = only_finding(job, tmp_path)
    assert found.rank == 2
    assert found.step == 7
    assert "15 of 597 steps, the first one 7, mostly 40 apart" in found.evidence
    assert "rank 2 waits for input longer" in found.evidence


def test_long_steps_among_those_that_were_noted_together(tmp_path: Path) -> None:
    """Of 4 steps each, with equal shares, as of steps of a few milliseconds."""
    job = WrittenRecording()
    job.computation[1, 25::50] += 2.0
    for column in (job.computation, job.input, job.exposed):
        column[:] = np.repeat(column.reshape(len(column), -1, 4).mean(2), 4, axis=1)
    found = only_finding(job, tmp_path)
    assert (found.rule, found.rank, found.step) == ("StepOutlier", 1, 24)
    assert found.figures["count"] == 12
    assert found.figures["long"] == pytest.approx(2450, rel=0.05)

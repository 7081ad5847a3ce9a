"""Which hosts wait for input, and since when; on written recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.insight.rules.faults import Fault, fires_alone, only_finding
from tests.insight.rules.test_inputs import slow_map
from tests.insight.written_recording import WrittenRecording


def slow_map_in_turn(job: WrittenRecording) -> None:
    """With batches that are prepared ahead, a rank waits while the others' are there already, for 60 steps in a row."""
    slow_map(job)
    steps = np.arange(job.input.shape[1])
    for rank, row in enumerate(job.input):
        row[steps // 60 % 2 != rank % 2] = 0.01


FAULTS: dict[str, Fault] = {
    "slow_map_in_turn": (slow_map_in_turn, 0, {("Dataloader", "node-0", None), ("Dataloader", "node-1", None)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_rule_and_no_other(fault: str, tmp_path: Path) -> None:
    fires_alone(FAULTS[fault], tmp_path)


def test_the_share_of_input_is_that_since_it_is_slow(tmp_path: Path) -> None:
    """Over the whole run it would be less, as is the cost."""
    job = WrittenRecording(hosts=1)
    job.input[:, 200:] += 0.6
    for table in job.process:
        table["cpu"] *= 0.2
    found = only_finding(job, tmp_path)
    first, last = found.figures["since"]
    assert first <= 200 <= last
    assert found.figures["share"] == pytest.approx(100 * 0.611 / 1.05, rel=0.02)
    assert found.lost == pytest.approx(found.figures["share"] / 100 * 400 / 600, rel=0.02)
    assert f"% of a step, from a step between {first} and {last} to the end. Meanwhile" in found.evidence


def test_input_that_is_waited_for_now_and_then_is_said_of_all_steps(tmp_path: Path) -> None:
    """In 40 steps of 60: nowhere long enough for most of the waits."""
    job = WrittenRecording(hosts=1)
    job.input[:, np.arange(job.input.shape[1]) % 60 < 40] += 0.6
    for table in job.process:
        table["cpu"] *= 0.2
    found = only_finding(job, tmp_path)
    assert found.figures["since"] is None
    assert "% of a step, in the median of all steps. Meanwhile" in found.evidence

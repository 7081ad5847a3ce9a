"""Rules, their parameters, and what a finding says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.insight import Finding, diagnose
from smddp_tf.insight.rules import max_initialization_time, step_outlier
from tests.insight.written_recording import WrittenRecording


def test_parameters_can_be_changed(tmp_path: Path) -> None:
    job = WrittenRecording()
    job.computation[1, [100, 300, 500]] += 4.0
    folder = job.write(tmp_path)
    assert not diagnose(folder).findings
    (found,) = diagnose(folder, [step_outlier(n_outliers=2)]).findings
    assert found.figures["count"] == 3
    (late,) = diagnose(folder, [max_initialization_time(threshold=0.5)]).findings
    assert late.rank == 3
    assert late.figures["seconds"] == pytest.approx(33.5, abs=0.1)
    with pytest.raises(
        TypeError, match=r"StepOutlier has the parameters stddev, n_outliers\. Received: \['outliers'\]"
    ):
        step_outlier(outliers=2)


def test_severity_place_and_cost_in_words() -> None:
    assert [Finding(lost, {}).severity for lost in (0.31, 0.3, 0.29, 0.1, 0.09)] == [
        "high", "high", "medium", "medium", "low",
    ]  # fmt: skip
    assert Finding(0.0, {}).where == "all ranks"
    assert Finding(0.0, {}, host="node-1").where == "node-1"
    assert Finding(0.0, {}, rank=0).where == "rank 0"  # not to be taken for none
    assert Finding(0.0, {}, host="node-1", rank=3).where == "rank 3 on node-1"
    assert Finding(0.0, {}).cost == "at an unknown cost"
    assert Finding(0.234, {}).cost == "about 23 % of the time"


def test_sentences_have_the_figures_and_the_parameters() -> None:
    described = Finding(0.2, {"seconds": 34.56}, rank=3).described(max_initialization_time(threshold=0.5))
    assert described.rule == "MaxInitializationTime"
    assert described.figures == {"threshold": 0.5, "seconds": 34.56}
    assert described.evidence == "35 s after `hvd.init`; the limit is 0.5 minutes."
    assert "{" not in described.what + described.evidence + described.advice

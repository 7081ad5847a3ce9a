"""All rules together: each has a fault, a healthy job has none, their parameters are the published ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smddp_tf.insight import diagnose
from smddp_tf.insight.rules import RULES
from tests.insight.rules import (
    test_hosts,
    test_hosts_gpus,
    test_inputs,
    test_network,
    test_ranks,
    test_steps,
    test_waiting,
)
from tests.insight.written_recording import WrittenRecording


def test_every_rule_has_a_fault() -> None:
    tests = (test_hosts, test_hosts_gpus, test_inputs, test_network, test_ranks, test_steps, test_waiting)
    found = {rule for test in tests for _, _, expected in test.FAULTS.values() for rule, _, _ in expected}
    assert found == {rule.name for rule in RULES} - {"OverallSystemUsage"}


NEEDS_GPU = {"BatchSize", "CPUBottleneck", "GPUMemoryIncrease", "LoadBalancing", "LowGPUUtilization"}


@pytest.mark.parametrize(("hosts", "local", "gpus"), [(1, 1, 0), (1, 4, 2), (2, 1, 0), (3, 2, 1)])
def test_a_healthy_job_has_no_findings(hosts: int, local: int, gpus: int, tmp_path: Path) -> None:
    diagnosis = diagnose(WrittenRecording(hosts, local, gpus=gpus).write(tmp_path))
    assert [str(each) for each in diagnosis.findings] == []
    not_seen = {result.rule.name for result in diagnosis.results if result.status == "not seen here"}
    assert (not_seen & NEEDS_GPU == NEEDS_GPU) == (gpus == 0)
    assert ("LateRank" in not_seen) == (hosts * local == 1)
    assert ("SlowLink" in not_seen) == (hosts == 1)


def test_the_published_parameters() -> None:
    """Those of the developer guide (its rules for profiling); `Dataloader`'s of the rule configuration."""
    published = {
        "BatchSize": [70, 70, 70, 100, 500],
        "CPUBottleneck": [50, 10, 90, 100],
        "GPUMemoryIncrease": [10, 100, 500],
        "IOBottleneck": [50, 70, 50, 1000],
        "LoadBalancing": [0.5, 10],
        "LowGPUUtilization": [70, 10, 1000, 500],
        "MaxInitializationTime": [20],
        "StepOutlier": [5, 10],
        "StalledTraining": [1800],
        "Dataloader": [70, 200],
    }
    ours = {rule.name: list(rule.parameters.values()) for rule in RULES}
    assert {name: ours[name][: len(values)] for name, values in published.items()} == published


def test_the_page_has_the_parameters() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/insight.md").read_text(encoding="utf-8")
    for rule in RULES:
        parameters = " ".join(f"{name}={value:g}" for name, value in rule.parameters.items())
        assert f"| {rule.name} | " in page
        assert re.search(rf"^{rule.name} +{re.escape(parameters)}$", page, re.MULTILINE) or not parameters

"""The rules on communication, on written recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.insight import diagnose
from tests.insight.rules.faults import Fault, fires_alone
from tests.insight.written_recording import WrittenRecording


def compiled(job: WrittenRecording) -> None:
    job.exposed += 0.15
    job.hidden *= 0.05


def slow_network(job: WrittenRecording) -> None:
    job.exposed += 0.5
    job.hidden *= 0.1
    for host, table in enumerate(job.host):
        table["sent"] *= 0.6 - 0.1 * host


FAULTS: dict[str, Fault] = {
    "compiled": (compiled, 0, {("NothingHidden", None, None)}),
    "slow_network": (slow_network, 0, {("SlowLink", "node-1", None)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_rule_and_no_other(fault: str, tmp_path: Path) -> None:
    fires_alone(FAULTS[fault], tmp_path)


def test_traffic_that_no_interface_counts_is_no_slow_link(tmp_path: Path) -> None:
    """As with EFA, or with nodes that are pretended on one host."""
    job = WrittenRecording()
    job.exposed += 0.3
    for table in job.host:
        table["sent"] *= 1e-3
    diagnosis = diagnose(job.write(tmp_path))
    assert [result.status for result in diagnosis.results if result.rule.name == "SlowLink"] == ["not seen here"]

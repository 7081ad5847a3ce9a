"""The rules on what each host uses, on written recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smddp_tf.insight.recording import load
from smddp_tf.insight.rules.hosts import usage
from tests.insight.rules.faults import Fault, fires_alone
from tests.insight.written_recording import WrittenRecording


def hogged(job: WrittenRecording) -> None:
    job.host[1]["runnable"] += 14
    job.host[1]["cpu"] = 97 + 0.01 * job.host[1]["cpu"]


FAULTS: dict[str, Fault] = {
    "hogged": (hogged, 0, {("OversubscribedCores", "node-1", None)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_rule_and_no_other(fault: str, tmp_path: Path) -> None:
    fires_alone(FAULTS[fault], tmp_path)


def test_percentiles_of_what_each_host_uses(tmp_path: Path) -> None:
    job = WrittenRecording(hosts=2, local=1, gpus=2)
    for host, table in enumerate(job.host):
        table["cpu"][:] = 10 + host  # of every core
        table["memory"][:] = 16e9 * (1 + host)  # of 64e9
        table["disk_read"][:] = np.linspace(0, 100e6, job.samples)
        table["gpu"][:] = [70, 20 + host]
    found = usage(load(job.write(tmp_path)))
    assert list(found) == ["node-0", "node-1"]
    assert found["node-1"]["CPU %"] == pytest.approx({"p50": 11, "p95": 11, "p99": 11})
    assert found["node-1"]["memory %"] == pytest.approx({"p50": 50, "p95": 50, "p99": 50})
    assert found["node-0"]["memory %"]["p50"] == pytest.approx(25)
    assert found["node-0"]["read from disks MB/s"] == pytest.approx({"p50": 50, "p95": 95, "p99": 99}, abs=2)
    assert [found["node-1"][f"GPU {gpu} %"]["p50"] for gpu in (0, 1)] == pytest.approx([70, 21])

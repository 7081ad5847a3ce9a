"""The rules on hosts with GPUs, on written recordings: no machine of these tests has one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smddp_tf.insight import diagnose
from tests.insight.rules.faults import Fault, fires_alone
from tests.insight.written_recording import WrittenRecording


def small_batch(job: WrittenRecording) -> None:
    job.host[1]["gpu"] *= 0.6
    job.host[1]["gpu_memory"] *= 0.3


def busy_cpu(job: WrittenRecording) -> None:
    """GPUs work one sample of three; the CPU is busy all the time, with no more threads than cores."""
    job.host[0]["gpu"][np.arange(job.samples) % 3 > 0] = 4
    job.host[0]["cpu"] = 96 + 0.01 * job.host[0]["cpu"]


def gpu_memory_leak(job: WrittenRecording) -> None:
    job.host[1]["gpu_memory"][:, 1] = np.linspace(30, 95, job.samples)


def idle_gpu(job: WrittenRecording) -> None:
    job.host[1]["gpu"][:, 0] *= 0.25


def gpu_bursts(job: WrittenRecording) -> None:
    """Of both GPUs, so that their loads are equal."""
    job.host[0]["gpu"][np.arange(job.samples) % 4 == 0] = 3


FAULTS: dict[str, Fault] = {
    "small_batch": (small_batch, 2, {("BatchSize", "node-1", None)}),
    "busy_cpu": (busy_cpu, 2, {("CPUBottleneck", "node-0", None)}),
    "gpu_memory_leak": (gpu_memory_leak, 2, {("GPUMemoryIncrease", "node-1", None)}),
    "idle_gpu": (idle_gpu, 2, {("LoadBalancing", "node-1", None)}),
    "gpu_bursts": (gpu_bursts, 2, {("LowGPUUtilization", "node-0", None)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_rule_and_no_other(fault: str, tmp_path: Path) -> None:
    fires_alone(FAULTS[fault], tmp_path)


def test_a_symptom_is_not_a_second_finding(tmp_path: Path) -> None:
    """A GPU that waits for input is used little; on the other host the batch is too small all the same."""
    job = WrittenRecording(gpus=2)
    job.host[0]["gpu"] *= 0.5
    job.host[0]["iowait"] += 60
    job.host[1]["gpu"] *= 0.5
    job.host[1]["gpu_memory"] *= 0.5
    diagnosis = diagnose(job.write(tmp_path))
    assert {(each.rule, each.host) for each in diagnosis.findings} == {
        ("IOBottleneck", "node-0"),
        ("BatchSize", "node-1"),
    }
    reasons = {result.rule.name: (result.status, result.reason) for result in diagnosis.results}
    assert reasons["LowGPUUtilization"] == ("quiet", "explained by BatchSize, IOBottleneck")

"""Each rule of smddp_tf.insight fires on its fault and on no other; on written recordings.

What a GPU does is not recorded on the machines that run these tests: all samples of GPUs are written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smddp_tf.insight import Finding, diagnose
from smddp_tf.insight.rules import RULES, max_initialization_time, step_outlier
from tests.insight.written_recording import WrittenRecording

Where = tuple[str, "str | None", "int | None"]  # rule, host, rank
NEEDS_GPU = {"BatchSize", "CPUBottleneck", "GPUMemoryIncrease", "LoadBalancing", "LowGPUUtilization"}


def small_batch(job: WrittenRecording) -> None:
    job.host[1]["gpu"] *= 0.6
    job.host[1]["gpu_memory"] *= 0.3


def busy_cpu(job: WrittenRecording) -> None:
    """GPUs work one sample of three; the CPU is busy all the time, with no more threads than cores."""
    job.host[0]["gpu"][np.arange(job.samples) % 3 > 0] = 4
    job.host[0]["cpu"] = 96 + 0.01 * job.host[0]["cpu"]


def gpu_memory_leak(job: WrittenRecording) -> None:
    job.host[1]["gpu_memory"][:, 1] = np.linspace(30, 95, job.samples)


def slow_disks(job: WrittenRecording) -> None:
    job.host[0]["gpu"] *= 0.4
    job.host[0]["iowait"] += 60


def idle_gpu(job: WrittenRecording) -> None:
    job.host[1]["gpu"][:, 0] *= 0.25


def gpu_bursts(job: WrittenRecording) -> None:
    """Of both GPUs, so that their loads are equal."""
    job.host[0]["gpu"][np.arange(job.samples) % 4 == 0] = 3


def slow_files(job: WrittenRecording) -> None:
    job.input += 0.5
    for rank, table in enumerate(job.process):
        table["cpu"] *= 0.2 + 0.01 * rank


def slow_map(job: WrittenRecording) -> None:
    job.input += 0.5
    for rank, table in enumerate(job.process):
        table["cpu"] *= 0.2
        table["read_bytes"] = table["storage_read_bytes"] = np.full(job.samples, 1000 * rank)


def busy_map(job: WrittenRecording) -> None:
    """It reads files as well, but has no core left."""
    job.input += 0.5
    for table in job.process:
        table["cpu"] = np.full(job.samples, 390.0)


def slow_map_in_turn(job: WrittenRecording) -> None:
    """With batches that are prepared ahead, a rank waits while the others' are there already, for 60 steps in a row."""
    slow_map(job)
    steps = np.arange(job.input.shape[1])
    for rank, row in enumerate(job.input):
        row[steps // 60 % 2 != rank % 2] = 0.01


def many_loaders(job: WrittenRecording) -> None:
    for table in job.process[2:]:
        table["children"] += 9


def slow_start(job: WrittenRecording) -> None:
    job.initialization += 1300 + np.arange(len(job.initialization))


def long_steps(job: WrittenRecording) -> None:
    """One in fifty, because of one rank."""
    job.computation[3, 25::50] += 2.0


def stall(job: WrittenRecording) -> None:
    job.exposed[0, 400] += 2000
    job.ended = False


def late_from_the_middle(job: WrittenRecording) -> None:
    job.computation[2, 300:] += 0.2


def late_input(job: WrittenRecording) -> None:
    job.input[1, 150:450] += 0.3


def compiled(job: WrittenRecording) -> None:
    job.exposed += 0.15
    job.hidden *= 0.05


def slow_network(job: WrittenRecording) -> None:
    job.exposed += 0.5
    job.hidden *= 0.1
    for host, table in enumerate(job.host):
        table["sent"] *= 0.6 - 0.1 * host


def same_files(job: WrittenRecording) -> None:
    """Both ranks of a host read 800 MB; half of what each reads comes from storage, the rest from the page cache."""
    for rank, table in enumerate(job.process):
        table["read_bytes"] = np.linspace(0, 800e6 + rank, job.samples)
        table["storage_read_bytes"] = table["read_bytes"] / 2


def hogged(job: WrittenRecording) -> None:
    job.host[1]["runnable"] += 14
    job.host[1]["cpu"] = 97 + 0.01 * job.host[1]["cpu"]


def slow_host(job: WrittenRecording) -> None:
    job.computation[2:] *= 1.4


FAULTS: dict[str, tuple[Callable[[WrittenRecording], None], int, set[Where]]] = {
    "small_batch": (small_batch, 2, {("BatchSize", "node-1", None)}),
    "busy_cpu": (busy_cpu, 2, {("CPUBottleneck", "node-0", None)}),
    "gpu_memory_leak": (gpu_memory_leak, 2, {("GPUMemoryIncrease", "node-1", None)}),
    "slow_disks": (slow_disks, 2, {("IOBottleneck", "node-0", None)}),
    "idle_gpu": (idle_gpu, 2, {("LoadBalancing", "node-1", None)}),
    "gpu_bursts": (gpu_bursts, 2, {("LowGPUUtilization", "node-0", None)}),
    "slow_files": (slow_files, 0, {("IOBottleneck", "node-0", None), ("IOBottleneck", "node-1", None)}),
    "slow_map": (slow_map, 0, {("Dataloader", "node-0", None), ("Dataloader", "node-1", None)}),
    "slow_map_in_turn": (slow_map_in_turn, 0, {("Dataloader", "node-0", None), ("Dataloader", "node-1", None)}),
    "busy_map": (busy_map, 0, {("Dataloader", "node-0", None), ("Dataloader", "node-1", None)}),
    "many_loaders": (many_loaders, 0, {("Dataloader", "node-1", None)}),
    "slow_start": (slow_start, 0, {("MaxInitializationTime", "node-1", 3)}),
    "long_steps": (long_steps, 0, {("StepOutlier", "node-1", 3)}),
    "stall": (stall, 0, {("StalledTraining", "node-0", 0)}),
    "late_from_the_middle": (late_from_the_middle, 0, {("LateRank", "node-1", 2)}),
    "late_input": (late_input, 2, {("LateRank", "node-0", 1)}),
    "compiled": (compiled, 0, {("NothingHidden", None, None)}),
    "slow_network": (slow_network, 0, {("SlowLink", "node-1", None)}),
    "same_files": (same_files, 0, {("AllRanksReadEverything", f"node-{host}", None) for host in (0, 1)}),
    "hogged": (hogged, 0, {("OversubscribedCores", "node-1", None)}),
    "slow_host": (slow_host, 0, {("DifferentSpeeds", "node-1", None)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_rule_and_no_other(fault: str, tmp_path: Path) -> None:
    inject, gpus, expected = FAULTS[fault]
    job = WrittenRecording(gpus=gpus)
    inject(job)
    found = diagnose(job.write(tmp_path)).findings
    assert {(each.rule, each.host, each.rank) for each in found} == expected
    for each in found:
        assert each.evidence
        assert each.advice
        assert 0 <= each.lost <= 1


def test_every_rule_has_a_fault() -> None:
    assert {rule for _, _, expected in FAULTS.values() for rule, _, _ in expected} == {rule.name for rule in RULES} - {
        "OverallSystemUsage"
    }


@pytest.mark.parametrize(("hosts", "local", "gpus"), [(1, 1, 0), (1, 4, 2), (2, 1, 0), (3, 2, 1)])
def test_a_healthy_job_has_no_findings(hosts: int, local: int, gpus: int, tmp_path: Path) -> None:
    diagnosis = diagnose(WrittenRecording(hosts, local, gpus=gpus).write(tmp_path))
    assert [str(each) for each in diagnosis.findings] == []
    not_seen = {result.rule.name for result in diagnosis.results if result.status == "not seen here"}
    assert (not_seen & NEEDS_GPU == NEEDS_GPU) == (gpus == 0)
    assert ("LateRank" in not_seen) == (hosts * local == 1)
    assert ("SlowLink" in not_seen) == (hosts == 1)


def only_finding(job: WrittenRecording, folder: Path) -> Finding:
    (found,) = diagnose(job.write(folder)).findings
    return found


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


def test_what_is_read_from_disks_and_what_from_the_page_cache(tmp_path: Path) -> None:
    """Each rank reads 3 MB/s or more, of which disks give half on rank 0 and nothing in another recording."""
    for share in (0.5, 0.0):
        job = WrittenRecording(hosts=1, local=1)
        job.input += 0.5
        job.process[0]["cpu"] *= 0.2
        job.process[0]["storage_read_bytes"] = share * job.process[0]["read_bytes"]
        found = only_finding(job, tmp_path / str(share))
        assert found.rule == "IOBottleneck"
        assert found.figures["rate"] == pytest.approx(3.0, rel=0.01)
        assert f"reads 3.0 MB/s: {3 * share:.1f} MB/s from disks, the rest from the page cache" in found.evidence


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


def test_traffic_that_no_interface_counts_is_no_slow_link(tmp_path: Path) -> None:
    """As with EFA, or with nodes that are pretended on one host."""
    job = WrittenRecording()
    job.exposed += 0.3
    for table in job.host:
        table["sent"] *= 1e-3
    diagnosis = diagnose(job.write(tmp_path))
    assert [result.status for result in diagnosis.results if result.rule.name == "SlowLink"] == ["not seen here"]


def test_files_of_their_own_are_not_the_same_files(tmp_path: Path) -> None:
    """Equally large ones."""
    job = WrittenRecording(hosts=1, local=4)
    for rank, table in enumerate(job.process):
        table["read_bytes"] = table["storage_read_bytes"] = np.linspace(0, 800e6 + rank, job.samples)
    diagnosis = diagnose(job.write(tmp_path))
    status = {result.rule.name: result.status for result in diagnosis.results}
    assert status["AllRanksReadEverything"] == "quiet"


def test_the_page_has_the_parameters() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/insight.md").read_text(encoding="utf-8")
    for rule in RULES:
        parameters = " ".join(f"{name}={value:g}" for name, value in rule.parameters.items())
        assert f"| {rule.name} | " in page
        assert re.search(rf"^{rule.name} +{re.escape(parameters)}$", page, re.MULTILINE) or not parameters

"""The rules on input: disks, files, loaders; on written recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smddp_tf.insight import diagnose
from tests.insight.rules.faults import Fault, fires_alone, only_finding
from tests.insight.written_recording import WrittenRecording


def slow_disks(job: WrittenRecording) -> None:
    job.host[0]["gpu"] *= 0.4
    job.host[0]["iowait"] += 60


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


def many_loaders(job: WrittenRecording) -> None:
    for table in job.process[2:]:
        table["children"] += 9


def same_files(job: WrittenRecording) -> None:
    """Both ranks of a host read 800 MB; half of what each reads comes from storage, the rest from the page cache."""
    for rank, table in enumerate(job.process):
        table["read_bytes"] = np.linspace(0, 800e6 + rank, job.samples)
        table["storage_read_bytes"] = table["read_bytes"] / 2


FAULTS: dict[str, Fault] = {
    "slow_disks": (slow_disks, 2, {("IOBottleneck", "node-0", None)}),
    "slow_files": (slow_files, 0, {("IOBottleneck", "node-0", None), ("IOBottleneck", "node-1", None)}),
    "slow_map": (slow_map, 0, {("Dataloader", "node-0", None), ("Dataloader", "node-1", None)}),
    "busy_map": (busy_map, 0, {("Dataloader", "node-0", None), ("Dataloader", "node-1", None)}),
    "many_loaders": (many_loaders, 0, {("Dataloader", "node-1", None)}),
    "same_files": (same_files, 0, {("AllRanksReadEverything", f"node-{host}", None) for host in (0, 1)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fires_its_rule_and_no_other(fault: str, tmp_path: Path) -> None:
    fires_alone(FAULTS[fault], tmp_path)


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


def test_files_of_their_own_are_not_the_same_files(tmp_path: Path) -> None:
    """Equally large ones."""
    job = WrittenRecording(hosts=1, local=4)
    for rank, table in enumerate(job.process):
        table["read_bytes"] = table["storage_read_bytes"] = np.linspace(0, 800e6 + rank, job.samples)
    diagnosis = diagnose(job.write(tmp_path))
    status = {result.rule.name: result.status for result in diagnosis.results}
    assert status["AllRanksReadEverything"] == "quiet"

"""What smddp_tf.insight reads: whole recordings, and what a killed job, a full file or another clock leaves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from smddp_tf.insight import NoRecording, diagnose
from smddp_tf.insight.recording import WARM_UP, load
from smddp_tf.monitor import files
from tests.insight.written_recording import INITIALIZATION, STARTED, WrittenRecording


def test_what_was_written_is_read(tmp_path: Path) -> None:
    job = WrittenRecording(hosts=2, local=2, gpus=2)
    recording = load(job.write(tmp_path))
    assert recording.size == 4
    np.testing.assert_allclose(recording.aligned["input"], job.input[:, WARM_UP:])
    np.testing.assert_allclose(recording.aligned["computation"], job.computation[:, WARM_UP:])
    np.testing.assert_array_equal(recording.hosts["node-1"]["gpu"], job.host[1]["gpu"])
    np.testing.assert_array_equal(recording.processes[2]["read_bytes"], job.process[2]["read_bytes"])
    assert recording.groups == {"node-0": [0, 1], "node-1": [2, 3]}


def test_ranks_that_are_alone_on_their_hosts_are_compared(tmp_path: Path) -> None:
    assert load(WrittenRecording(hosts=3, local=1).write(tmp_path)).groups == {"": [0, 1, 2]}


def test_times_are_those_of_rank_0(tmp_path: Path) -> None:
    job = WrittenRecording()
    job.clock = np.array([0.0, 5.0, -7.0, 1000.0])
    job.initialization[:] = INITIALIZATION
    recording = load(job.write(tmp_path))
    times = recording.aligned["time"]
    np.testing.assert_allclose(times, np.broadcast_to(times[0], times.shape), atol=1e-5)
    assert [facts["started"] for facts in recording.facts.values()] == [STARTED] * 4
    assert recording.hosts["node-1"]["time"][0] == pytest.approx(STARTED + INITIALIZATION)


def test_torn_lines_and_steps_of_some_ranks_only(tmp_path: Path) -> None:
    """As a job leaves them that was killed."""
    WrittenRecording().write(tmp_path)
    file = files.steps_file(tmp_path, 1)
    file.write_bytes(file.read_bytes()[:-40])
    steps = files.steps_file(tmp_path, 2)
    steps.write_text("".join(steps.read_text().splitlines(keepends=True)[:500]) + "\n\0\0\n[1]\n")
    files.process_file(tmp_path, 3).unlink()
    files.host_file(tmp_path, "node-1").unlink()
    recording = load(tmp_path)
    assert recording.steps[1]["step"][-1] == 598
    assert recording.aligned["step"].tolist() == list(range(WARM_UP, 500))
    assert diagnose(tmp_path).findings == []


def test_a_rank_without_files(tmp_path: Path) -> None:
    WrittenRecording().write(tmp_path)
    for file in tmp_path.glob("rank-00001*"):
        file.unlink()
    files.rank_file(tmp_path, 3).write_text('{"format": 1, "ra')
    files.steps_file(tmp_path, 2).unlink()
    diagnosis = diagnose(tmp_path)
    assert diagnosis.job["without_recording"] == [1, 3]
    assert diagnosis.recording.ranks == [0]
    assert "There is no recording of ranks 1, 3." in str(diagnosis)


def test_a_file_that_was_begun_anew(tmp_path: Path) -> None:
    job = WrittenRecording()
    file = files.steps_file(job.write(tmp_path), 0)
    lines = file.read_text().splitlines(keepends=True)
    file.with_name(f"{file.name}.1").write_text("".join(lines[100:400]))
    file.write_text("".join(lines[400:]))
    assert load(tmp_path).steps[0]["step"].tolist() == list(range(100, 600))


def test_steps_that_were_made_again_count_once(tmp_path: Path) -> None:
    """After a failure, from the last commit on."""
    file = files.steps_file(WrittenRecording().write(tmp_path), 0)
    lines = file.read_text().splitlines()
    again = [json.dumps({**json.loads(line), "seconds": 9.0}) for line in lines[550:]]
    file.write_text("\n".join(lines[:580] + again) + "\n")
    steps = load(tmp_path).steps[0]
    assert steps["step"].tolist() == list(range(600))
    assert (steps["seconds"] == 9.0).sum() == 50


def test_a_job_without_steps(tmp_path: Path) -> None:
    """A loop of its own that tells no steps."""
    WrittenRecording().write(tmp_path)
    for rank in range(4):
        files.steps_file(tmp_path, rank).unlink()
    diagnosis = diagnose(tmp_path)
    assert diagnosis.findings == []
    assert {result.status for result in diagnosis.results} == {"quiet", "not seen here"}
    assert "`hvd.monitor.step`" in str(diagnosis)


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    with pytest.raises(NoRecording, match="holds no recording. Record a job with: smddprun --monitor"):
        diagnose(tmp_path)
    with pytest.raises(NoRecording, match="holds no recording"):
        diagnose(tmp_path / "missing")

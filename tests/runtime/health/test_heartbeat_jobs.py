"""A rank is killed, stands still, or loses its launcher: the others say so and end. tests/faults has all cases."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.mpirun import SCRIPTS, Finished, environment, find_mpirun, free_port, launch, mpirun_flags

pytestmark = pytest.mark.launches

RANKS = 3
LIMIT_SECONDS = 120.0
SOON_SECONDS = 30.0


def lose(manner: str, env: dict[str, str] | None = None) -> Finished:
    return launch([SCRIPTS / "lost_rank.py", manner], RANKS, timeout=LIMIT_SECONDS, env=env)


def test_a_killed_rank_is_named_by_the_others() -> None:
    job = lose("killed")
    assert not job.timed_out, job.output
    assert job.returncode != 0
    said = re.findall(
        r"\[rank (\d)\] error: Rank 1 \(host \S+\) has died.* Under way on rank \d: allreduce 'after'", job.output
    )
    assert set(said) <= {"0", "2"}
    assert said, job.output  # the launcher may end the other survivor before it has said so


def test_a_stopped_rank_ends_the_job_though_the_others_are_busy_elsewhere() -> None:
    job = lose("stopped", {"SMDDP_HEARTBEAT_TIMEOUT": "8", "SMDDP_FAILURE_GRACE": "1"})
    assert not job.timed_out, job.output
    assert job.returncode != 0
    assert re.search(r"\[rank [02]\] error: No sign of life from rank 1 \(host \S+\) for \d+\.\d s", job.output), (
        job.output
    )
    assert "The program did not end within 1 s of the loss of a rank" in job.output


def test_ranks_end_when_their_launcher_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = [find_mpirun(), "-np", str(RANKS), *mpirun_flags(find_mpirun()), sys.executable]
    with output.open("wb") as file:  # not launch(), which ends what is left of a job
        subprocess.run(
            [*command, str(SCRIPTS / "lost_rank.py"), "launcher"],
            env=environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    ranks = [int(pid) for pid in re.findall(r"runs as process (\d+)", output.read_text())]
    assert len(ranks) == RANKS, output.read_text()
    try:
        deadline = time.monotonic() + SOON_SECONDS
        while any(is_running(pid) for pid in ranks) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(is_running(pid) for pid in ranks)
    finally:
        for pid in filter(is_running, ranks):
            os.kill(pid, signal.SIGKILL)


def test_a_wrapper_may_end_before_the_rank() -> None:
    """The job lives as long as the launcher, whatever becomes of the processes between the two."""
    job = lose("wrapped").check()
    assert sorted(re.findall(r"rank (\d) has outlived its parent", job.output)) == ["0", "1", "2"], job.output


def test_ranks_that_stay_longer_than_the_first_of_their_node_miss_nobody() -> None:
    """Heartbeats of other nodes went to the one that has left."""
    script = [SCRIPTS / "on_pretended_nodes.py", 2, Path(__file__).with_name("first_of_node_leaves.py")]
    job = launch(script, 4, timeout=LIMIT_SECONDS, env={"SMDDP_HEARTBEAT_TIMEOUT": "9"})
    assert sorted(re.findall(r"rank (\d) has left", job.check().output)) == ["0", "1", "2", "3"], job.output
    assert "No sign of life" not in job.output


def lines_of(log: Path, wanted: int) -> list[str]:
    """Waits until a rank has written so many lines."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        lines = log.read_text().splitlines() if log.exists() else []
        if len(lines) >= wanted:
            return lines
        assert time.monotonic() < deadline, lines
        time.sleep(0.02)


def closed_windows(process: int) -> int:
    """How many connections of the process wait for the other side to read (proc_net_tcp: timer 4)."""
    own = {os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir() if file.is_symlink()}
    tables = [Path("/proc/net", name).read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()[1:]]
    return sum(line[5].startswith("04:") and f"socket:[{line[9]}]" in own for line in lines)


def test_a_rank_that_is_stopped_for_eight_seconds_is_not_lost_over_tcp(tmp_path: Path) -> None:
    """Two nodes without MPI. The other rank sends it much: its kernel keeps what it can, and answers."""
    where = {"SMDDP_SIZE": "2", "SMDDP_COORDINATOR": f"127.0.0.1:{free_port()}", "SMDDP_CHUNK_BYTES": str(64 << 20)}
    ranks = []
    for rank in range(2):
        env = environment({**where, "SMDDP_RANK": str(rank), "SMDDP_HOST_ID": f"pretended-{rank}"})
        with (tmp_path / f"output.{rank}").open("wb") as output:
            command = [sys.executable, str(Path(__file__).with_name("stopped_a_while.py")), str(tmp_path)]
            ranks.append(subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT))
    try:
        stopped = int(lines_of(tmp_path / "log.1", 3)[0])
        for _ in range(50):  # until it happens in the middle of a step
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(0.6)
            if closed := closed_windows(ranks[0].pid):
                break
            os.kill(stopped, signal.SIGCONT)
            time.sleep(0.037)
        steps = len(lines_of(tmp_path / "log.0", 3))
        time.sleep(7.4)
        assert len(lines_of(tmp_path / "log.0", 3)) == steps
        os.kill(stopped, signal.SIGCONT)
        lines_of(tmp_path / "log.0", steps + 2)
        (tmp_path / "stop").touch()
        codes = [process.wait(LIMIT_SECONDS) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    said = [(tmp_path / f"output.{rank}").read_text() for rank in range(2)]
    assert codes == [0, 0], said
    assert closed >= 1
    assert not any("No answer" in text or "No sign of life" in text for text in said), said


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"

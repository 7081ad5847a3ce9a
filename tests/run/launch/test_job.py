"""The end of a job: which rank is named, and that nothing of what was said is lost."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from smddp_tf.run.launch import job as job_module
from smddp_tf.run.launch.job import Job, Outcome
from smddp_tf.run.launch.launch import _report
from smddp_tf.run.link.ends import End, Ends
from smddp_tf.run.link.server import ControlServer
from smddp_tf.run.output.output import Output
from smddp_tf.run.rank import supervisor as rank_module

ROOT = Path(__file__).resolve().parents[3]
BYSTANDER = End(1, because="Rank 1 (host b) has ended its session")


def first(*ends: tuple[int, End]) -> int | None:
    heard = Ends()
    for rank, end in ends:
        heard.add(rank, End.decode(end.encode()))
    failed = heard.first_failed()
    return failed[0] if failed else None


def test_the_rank_that_raised_is_named_whoever_ends_first() -> None:
    raised = End(1, raised="ValueError: my bug")
    assert first((0, BYSTANDER), (2, BYSTANDER), (1, raised)) == 1
    assert first((1, raised), (0, BYSTANDER)) == 1
    # Its own session has failed too, but of what it raised.
    assert first((0, BYSTANDER), (1, End(1, "ValueError: my bug", "The session has failed"))) == 1


def test_a_rank_that_says_nothing_has_ended_by_itself() -> None:
    assert first((0, BYSTANDER), (2, End(-9))) == 2
    assert first((0, BYSTANDER), (2, End(3)), (3, End(4))) == 2
    assert first((2, End(0)), (0, BYSTANDER), (3, BYSTANDER)) == 0  # the cause ended well, or was never heard of
    assert first((0, End(0)), (1, End(0))) is None


def test_the_pipe_tells_how_a_rank_ended() -> None:
    def said(*words: bytes, code: int = 1, told: tuple[int, ...] = ()) -> End:
        notes = rank_module._Notes()
        file, inode = map(int, notes.address.split(":"))
        assert os.fstat(file).st_ino == inode
        for word in words:
            os.write(file, word + b"\0")
        os.close(file)
        return notes.end_of(code, told)

    assert said(b"BRank 2 has died", b"Rmine", b"Bnext") == End(1, "mine", "Rank 2 has died")
    assert said(b"Bnext", b"LRank 2 has died") == End(1, because="Rank 2 has died")
    assert said() == End(1)
    assert said(told=(15,), code=-15) == End(-15, because="it was sent signal 15")
    assert not said(told=(15,), code=-15).is_cause


RANK = """
import sys, time
from smddp_tf.run.link.channel import Kind
from smddp_tf.run.link.client import ControlClient
from smddp_tf.run.link.ends import End
client = ControlClient()
client.send(Kind.HELLO, b'[0, "here", 1]')
for number in range(60):
    client.send(Kind.STDOUT, b"%d %s\\n" % (number, b"x" * 16000))
client.send(Kind.END, End(0).encode())
"""


class Slow(Output):
    """A console that takes its time."""

    def write(self, rank: int, stream: int, chunk: bytes) -> None:
        time.sleep(0.03)
        super().write(rank, stream, chunk)


def run_job(program: str) -> Outcome:
    """A job of one rank, which is its own mpirun."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with ControlServer(["127.0.0.1"]) as server, Slow(1) as output:
        return Job([sys.executable, "-c", program], environment, ["localhost"], server, output, 60).run()


def test_a_job_has_ended_when_all_was_heard(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """What the ranks have printed takes longer to show than the launcher waits without a word."""
    monkeypatch.setattr(job_module, "_LAST_OUTPUT_SECONDS", 0.4)
    outcome = run_job(RANK)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [str(number) for number in range(60)]
    assert (outcome.code, outcome.failed_rank) == (0, None)


def test_ranks_that_mpirun_has_left_behind_are_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_LAST_OUTPUT_SECONDS", 0.4)
    begin = time.monotonic()
    outcome = run_job(
        "import os\nfrom smddp_tf.run.link.channel import Kind\nfrom smddp_tf.run.link.client import ControlClient\n"
        "client = ControlClient()\n"
        "client.send(Kind.HELLO, b'[0, \"here\", 1]')\n"
        "if os.fork(): os._exit(0)\n"
        "client._link.recv(1)\n"  # until the launcher has closed its direction
        "client.send(Kind.STDOUT, b'left behind')\nos._exit(0)\n"
    )
    assert time.monotonic() - begin < 20
    assert outcome.code == 1  # nobody has said how rank 0 ended


def told(outcome: Outcome, stderr: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    with Output(2) as output:
        output.write(1, 1, stderr.encode())
        output.end_of_rank(1, last=outcome.end.is_cause)
        return f"smddprun: {_report(outcome, output)}".splitlines()


def test_what_is_told_of_the_rank(capsys: pytest.CaptureFixture[str]) -> None:
    def of(end: End) -> Outcome:
        return Outcome(end.shell_code, 1, "vm", end)

    traceback = (
        'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: Graph execution error:\n\n[[x]]\n'
    )
    assert told(of(End(1, raised="ValueError: my bug")), "noise\n" + traceback, capsys) == [
        "smddprun: rank 1 on vm ended with exit code 1, and the job with it: ValueError: my bug. Its traceback:",
        *traceback.splitlines(),
    ]
    assert told(of(End(3)), "", capsys) == [
        "smddprun: rank 1 on vm ended with exit code 3, and the job with it. It printed nothing."
    ]
    assert told(of(End(-9)), "step 7\n", capsys) == [
        "smddprun: rank 1 on vm was killed by signal 9, and the job with it (out of memory? `dmesg` on that host and "
        "memory.events of the container's cgroup say so). Its last lines:", "step 7",
    ]  # fmt: skip
    assert told(of(BYSTANDER), "", capsys) == [
        "smddprun: rank 1 on vm ended with exit code 1; it says that it was not the cause: "
        "Rank 1 (host b) has ended its session"
    ]

"""The end of a job: nothing of what was said is lost."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

import pytest

from smddp_tf.link.server import ControlServer
from smddp_tf.run.launch import job as job_module
from smddp_tf.run.launch.job import Job, Outcome, Surroundings
from smddp_tf.run.output.output import Output

ROOT = Path(__file__).resolve().parents[3]


RANK = """
import sys, time
from smddp_tf.link.channel import Kind
from smddp_tf.link.ends import End
from smddp_tf.run.rank.launcher import connect_to_launcher
client = connect_to_launcher()
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
    with contextlib.closing(ControlServer(["127.0.0.1"])) as server, Slow(1) as output:
        around = Surroundings(environment, ["localhost"], server, output, 60)
        return Job([sys.executable, "-c", program], around).run()


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
        "import os\nfrom smddp_tf.link.channel import Kind\n"
        "from smddp_tf.run.rank.launcher import connect_to_launcher\n"
        "client = connect_to_launcher()\n"
        "client.send(Kind.HELLO, b'[0, \"here\", 1]')\n"
        "if os.fork(): os._exit(0)\n"
        "client._link.recv(1)\n"  # until the launcher has closed its direction
        "client.send(Kind.STDOUT, b'left behind')\nos._exit(0)\n"
    )
    assert time.monotonic() - begin < 20
    assert outcome.code == 1  # nobody has said how rank 0 ended

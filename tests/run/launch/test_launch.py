"""What the launcher says of the rank that has ended the job."""

from __future__ import annotations

import pytest

from smddp_tf.link.ends import End
from smddp_tf.run.launch.job import Outcome
from smddp_tf.run.launch.launch import _report
from smddp_tf.run.output.output import Output

BYSTANDER = End(1, because="Rank 1 (host b) has ended its session")


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

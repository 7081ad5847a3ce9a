"""The processes that start a job's ranks: their exit codes, their output and their end."""

from __future__ import annotations

import contextlib
import os
import sys
import time

import psutil
import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.server import ControlServer
from smddp_tf.run.launch.starting import OUTPUTS, Starters
from tests.waiting import until

STUBBORN = "trap '' TERM; echo ready; sleep 600 & wait; wait"


def test_they_have_ended_when_all_have() -> None:
    with contextlib.closing(ControlServer(["127.0.0.1"])) as server:
        starters = Starters({**os.environ, "GIVEN": "7"}, server)
        one = starters.start(["sh", "-c", "echo out $GIVEN; exit 0"])
        other = starters.start(["sh", "-c", "echo err >&2; exec sleep 600"])
        third = starters.start(["sh", "-c", "exit 4"])
        said: dict[int, bytes] = {0: b"", 1: b""}

        def hear() -> bool:
            for frame in server.frames(0.05):
                said[OUTPUTS[frame.kind]] += frame.body
            return all(said.values())

        until(hear)
        assert said == {0: b"out 7\n", 1: b"err\n"}
        until(lambda: one.poll() == 0 and third.poll() == 4)
        assert starters.poll() is None
        other.kill()
        until(lambda: starters.poll() is not None)
        assert starters.poll() == -9  # the first, in the order of starting, that is not 0
        starters.close(9)


def test_close_ends_what_they_have_started() -> None:
    with contextlib.closing(ControlServer(["127.0.0.1"])) as server:
        starters = Starters(dict(os.environ), server)
        processes = [starters.start(["sh", "-c", STUBBORN]) for _ in range(2)]
        until(lambda: sum(psutil.Process(process.pid).children() != [] for process in processes) == 2)
        children = [child for process in processes for child in psutil.Process(process.pid).children()]
        begun = time.monotonic()
        starters.close(0.3)
        assert 0.3 <= time.monotonic() - begun < 30
        assert [process.returncode for process in processes] == [-9, -9]
        until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


def test_a_program_that_is_not_there() -> None:
    with contextlib.closing(ControlServer(["127.0.0.1"])) as server:
        starters = Starters(dict(os.environ), server)
        with pytest.raises(LaunchError, match="no-such-program cannot be started: No such file"):
            starters.start([f"{sys.prefix}/no-such-program"])
        assert starters.poll() == 0

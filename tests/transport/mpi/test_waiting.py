"""Ranks that do not come to the start: the others end in time, and say which are missing as far as they know."""

from __future__ import annotations

import pytest

from tests.support.mpirun import launch

pytestmark = [pytest.mark.launches, pytest.mark.one_process]

# Each rank sleeps so long, in units of the start timeout, before it comes to `hvd.init()`; 9: never.
SCRIPT = """
import os, sys, time
from mpi4py import MPI
import smddp_tf as hvd
late = [float(one) for one in sys.argv[1:]][MPI.COMM_WORLD.rank]
begin = time.monotonic()
if late >= 9:
    time.sleep(60)
time.sleep(late * float(os.environ["SMDDP_START_TIMEOUT"]))
try:
    hvd.init()
    print("rank", hvd.rank(), "has begun", flush=True)
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    assert not MPI.COMM_WORLD.iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG), "a message of hvd.init() is left"
    hvd.shutdown()
except Exception as error:
    print("rank", MPI.COMM_WORLD.rank, "after", round(time.monotonic() - begin), "s:", error, flush=True)
    time.sleep(1)
    os._exit(3)
"""


def run(*late: float, timeout: str):
    return launch(["-c", SCRIPT, *map(str, late)], ranks=len(late), timeout=50, env={"SMDDP_START_TIMEOUT": timeout})


def test_ranks_that_come_in_time_begin_together() -> None:
    """Past half of the time, when the ranks that wait tell one another."""
    done = run(0, 0.7, 0.6, timeout="8").check()
    assert {f"rank {rank} has begun" for rank in range(3)} <= set(done.output.splitlines())


def test_those_that_do_not_come_are_named() -> None:
    done = run(0, 9, 0.2, timeout="4")
    assert done.returncode
    assert not done.timed_out
    told = [line for line in done.output.splitlines() if "SMDDP_START_TIMEOUT" in line]
    assert told, done.output
    assert any("missing on rank 1. Check that all ranks call hvd.init()" in line for line in told), told
    assert not any("missing on rank 0" in line or "missing on rank 2" in line for line in told), told
    assert done.seconds < 30

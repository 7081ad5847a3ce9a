"""Waits for other ranks inside MPI: they hold no core, end in time, and say which ranks are missing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.mpirun import find_mpirun, launch

pytestmark = pytest.mark.launches

# As if another receive of the process had taken the messages of the first roll call, that on the user's communicator.
TAKEN = r"""
#include <mpi.h>
int MPI_Improbe(int source, int tag, MPI_Comm comm, int* came, MPI_Message* message, MPI_Status* status) {
  if (tag != 7772 || comm != MPI_COMM_WORLD) return PMPI_Improbe(source, tag, comm, came, message, status);
  *came = 0;
  return MPI_SUCCESS;
}
"""
# Seconds. From half of the first on ranks tell each other that they wait; the wait for the message is part of it.
START_TIMEOUT, LATE = 20.0, 11.0


def test_a_message_that_never_comes_is_waited_for_without_a_core(tmp_path: Path) -> None:
    mpicc = Path(find_mpirun()).parent / "mpicc"
    if not mpicc.exists():
        pytest.skip(f"there is no {mpicc}")
    source, library = tmp_path / "taken.c", tmp_path / "libtaken.so"
    source.write_text(TAKEN, encoding="utf-8")
    subprocess.run([str(mpicc), "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    env = {"LD_PRELOAD": str(library), "SMDDP_START_TIMEOUT": str(START_TIMEOUT)}
    job = launch([Path(__file__).with_name("come_late.py"), str(LATE)], 2, timeout=120, env=env).check()
    took = re.search(r"init took ([\d.]+) s, ([\d.]+) s of a core", job.output)
    assert took, job.output
    assert 5 <= float(took[1]) < 8, job.output  # it is waited for 5 s
    assert float(took[2]) < 0.5, job.output


# Each rank sleeps so long, in units of the start timeout, before it comes to `hvd.init()`; 9: never.
BEGIN = """
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


def begin(*late: float, timeout: str):
    return launch(["-c", BEGIN, *map(str, late)], ranks=len(late), timeout=50, env={"SMDDP_START_TIMEOUT": timeout})


def test_ranks_that_come_in_time_begin_together() -> None:
    """Past half of the time, when the ranks that wait tell one another."""
    done = begin(0, 0.7, 0.6, timeout="8").check()
    assert {f"rank {rank} has begun" for rank in range(3)} <= set(done.output.splitlines())


def test_those_that_do_not_come_are_named() -> None:
    done = begin(0, 9, 0.2, timeout="4")
    assert done.returncode
    assert not done.timed_out
    told = [line for line in done.output.splitlines() if "SMDDP_START_TIMEOUT" in line]
    assert told, done.output
    assert any("missing on rank 1. Check that all ranks call hvd.init()" in line for line in told), told
    assert not any("missing on rank 0" in line or "missing on rank 2" in line for line in told), told
    assert done.seconds < 60  # the sleep of rank 1

"""Waits for other ranks inside MPI: they hold no core."""

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

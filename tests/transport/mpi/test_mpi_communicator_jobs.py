"""An MPI with short tags, emulated in front of the one that is installed: jobs use no tag beyond its MPI_TAG_UB."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.mpirun import find_mpirun, launch
from tests.variants import in_full

pytestmark = pytest.mark.launches

LIMIT_SECONDS = 180.0
UCX_BITS, LEAST_BITS = 23, 20

# Says what the largest tag is, and ends the process that uses a larger one.
SHORT_TAGS = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
static int largest = LARGEST;
static void check(int tag) {
  if (tag <= largest) return;
  fprintf(stderr, "tag %d is beyond %d\n", tag, largest);
  abort();
}
int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* found) {
  int code = PMPI_Comm_get_attr(comm, key, value, found);
  if (key == MPI_TAG_UB) *(int**)value = &largest;
  return code;
}
int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  check(tag);
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  check(tag);
  return PMPI_Irecv(data, count, type, peer, tag, comm, request);
}
"""


def preload(folder: Path, bits: int) -> dict[str, str]:
    """The variables that put it in front of MPI."""
    mpicc = Path(find_mpirun()).parent / "mpicc"
    if not mpicc.exists():
        pytest.skip(f"there is no {mpicc}")
    source, library = folder / "short_tags.c", folder / "libshort_tags.so"
    source.write_text(SHORT_TAGS.replace("LARGEST", str((1 << bits) - 1)), encoding="utf-8")
    subprocess.run([str(mpicc), "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("bits", [LEAST_BITS, *in_full(UCX_BITS)])
def test_messages_keep_within_short_tags(tmp_path: Path, bits: int) -> None:
    arguments = ["-m", "pytest", "tests/collectives/test_transfers.py", "-p", "tests.mpi_plugin"]
    arguments += ["-p", "no:cacheprovider", "-q", "--color=no", "--pretend-nodes", "1,1"]
    job = launch(arguments, 2, LIMIT_SECONDS, env=preload(tmp_path, bits)).check()
    assert re.search(r"\d+ passed", job.output), job.output


def test_tags_that_are_too_short(tmp_path: Path) -> None:
    line = "import smddp_tf as hvd; hvd.init()"
    job = launch(["-c", line], 2, LIMIT_SECONDS, env=preload(tmp_path, LEAST_BITS - 1))
    assert job.returncode != 0
    assert f"This MPI allows message tags up to {(1 << LEAST_BITS - 1) - 1}; {(1 << LEAST_BITS) - 1} are needed" in (
        job.output
    )

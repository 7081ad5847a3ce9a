"""Programs that use mpi4py beside this library, in the same process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = [pytest.mark.launches, pytest.mark.one_process]


@pytest.mark.parametrize("when", ["before", "after", "late"])
def test_mpi4py_is_imported(when: str) -> None:
    env = {"SMDDP_START_TIMEOUT": "10"} if when == "late" else {}
    done = launch([Path(__file__).with_name("mpi4py_beside.py"), when], ranks=2, timeout=60, env=env).check()
    assert {"rank 0 done", "rank 1 done"} <= set(done.output.splitlines())


@pytest.mark.skipif(
    any(
        Path(devices).is_dir() and [*Path(devices).iterdir()] for devices in ("/sys/class/infiniband", "/sys/class/cxi")
    ),
    reason="this host has a fabric, which MPI may use",
)
@pytest.mark.parametrize("given", [None, "self,sm"])
def test_mpi_init_does_not_wait_for_a_fabric_that_is_not_there(given: str | None) -> None:
    """Open MPI 5 sleeps for a second where its component for one-sided transfers finds none."""
    code = (
        "import ctypes, smddp_tf; smddp_tf.init(); get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p; "
        "print('BTL', get(b'OMPI_MCA_btl').decode())"
    )
    done = launch(["-c", code], ranks=2, timeout=60, env={"OMPI_MCA_btl": given} if given else {}).check()
    assert done.output.count(f"BTL {given or '^openib,ofi'}") == 2


def test_mpi4py_without_threads_is_refused() -> None:
    code = (
        "import mpi4py; mpi4py.rc.thread_level = 'serialized'; from mpi4py import MPI; import smddp_tf; smddp_tf.init()"
    )
    done = launch(["-c", code], ranks=2, timeout=60)
    assert done.returncode
    assert not done.timed_out
    assert "Expected MPI_THREAD_MULTIPLE: call hvd.init() first, or leave mpi4py's default thread level" in done.output

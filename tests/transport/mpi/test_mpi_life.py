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


def test_mpi4py_without_threads_is_refused() -> None:
    code = (
        "import mpi4py; mpi4py.rc.thread_level = 'serialized'; from mpi4py import MPI; import smddp_tf; smddp_tf.init()"
    )
    done = launch(["-c", code], ranks=2, timeout=60)
    assert done.returncode
    assert not done.timed_out
    assert "Expected MPI_THREAD_MULTIPLE: call hvd.init() first, or leave mpi4py's default thread level" in done.output

"""init, shutdown, and the questions a process asks about itself."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import pytest

from tests.reasons import BEFORE_INIT

pytestmark = [pytest.mark.ranks("1", "2", "2+2", "2+1"), pytest.mark.filterwarnings("error")]


def _hosts(mpi) -> list[str]:
    return mpi.allgather(os.environ.get("SMDDP_HOST_ID", socket.gethostname()))


def test_rank_and_size_are_those_of_mpi(hvd, mpi):
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.size()) == (mpi.Get_rank(), mpi.Get_size())


def test_local_and_cross_numbers_follow_the_hosts(hvd, mpi):
    hosts, rank = _hosts(mpi), mpi.Get_rank()
    members = {host: [r for r, h in enumerate(hosts) if h == host] for host in hosts}
    local_rank = members[hosts[rank]].index(rank)
    rail = [host for host in members if len(members[host]) > local_rank]
    assert (hvd.local_rank(), hvd.local_size()) == (local_rank, len(members[hosts[rank]]))
    assert (hvd.cross_rank(), hvd.cross_size()) == (rail.index(hosts[rank]), len(rail))
    assert hvd.is_homogeneous() == (len({len(ranks) for ranks in members.values()}) == 1)


def test_a_second_init_does_nothing(hvd):
    hvd.init()
    assert hvd.is_initialized()


def test_probes(hvd):
    assert hvd.mpi_built() is True
    if os.environ.get("SMDDP_MPI") != "off":  # else MPI is there only where another test has used it
        assert hvd.mpi_enabled() is True  # the tests run under mpirun
        assert isinstance(hvd.mpi_threads_supported(), bool)
    assert type(hvd.nccl_built()) is int
    assert isinstance(hvd.cuda_built(), bool)
    for absent in ("gloo_enabled", "gloo_built", "ddl_built", "ccl_built", "rocm_built"):
        assert getattr(hvd, absent)() is False


@pytest.mark.parametrize("bad", ["world", 3, [0, "one"], [0.5], [], [0, 0], [-1], b"01"], ids=repr)
def test_init_refuses_what_is_no_communicator(hvd, bad):
    with pytest.raises(ValueError, match="`comm`"):
        hvd.init(comm=bad)


def test_init_refuses_the_null_communicator(hvd):
    from mpi4py import MPI

    with pytest.raises(ValueError, match="COMM_NULL"):
        hvd.init(comm=MPI.COMM_NULL)


def test_everything_raises_before_init(restartable):
    hvd = restartable
    hvd.shutdown()
    assert not hvd.is_initialized()
    for question in ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous"):
        with pytest.raises(ValueError, match=re.escape(f"{BEFORE_INIT} hvd.shutdown() has ended the session.")):
            getattr(hvd, question)()
    for collective in (
        lambda: hvd.allreduce(1.0),
        lambda: hvd.grouped_allreduce([1.0]),
        lambda: hvd.allgather([1.0]),
        lambda: hvd.grouped_allgather([[1.0]]),
        lambda: hvd.broadcast(1.0, 0),
        lambda: hvd.alltoall([1.0]),
        lambda: hvd.reducescatter([1.0]),
        lambda: hvd.grouped_reducescatter([[1.0]]),
        lambda: hvd.barrier(),
        lambda: hvd.broadcast_variables([], 0),
        lambda: hvd.broadcast_object(1),
        lambda: hvd.allgather_object(1),
    ):
        with pytest.raises(ValueError, match=BEFORE_INIT):
            collective()


def test_a_kernel_says_so_when_the_session_has_gone(restartable):
    """A function traced before shutdown and called after it: the error comes from the op."""
    import tensorflow as tf

    hvd = restartable
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
    assert function(tf.constant(1.0)) == hvd.size()
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match=BEFORE_INIT):
        function(tf.constant(1.0))
    hvd.init()
    assert function(tf.constant(1.0)) == hvd.size()


def test_shutdown_twice_is_harmless(restartable):
    restartable.shutdown()
    restartable.shutdown()
    assert not restartable.is_initialized()


def test_init_with_a_communicator_of_mpi4py(restartable, mpi):
    """Ranks numbered backwards, so that the answer can only come from the communicator."""
    hvd = restartable
    hvd.shutdown()
    backwards = mpi.Split(0, key=-mpi.Get_rank())
    hvd.init(comm=backwards)
    assert (hvd.rank(), hvd.size()) == (mpi.Get_size() - 1 - mpi.Get_rank(), mpi.Get_size())
    assert hvd.allgather_object(mpi.Get_rank()) == list(reversed(range(mpi.Get_size())))
    hvd.shutdown()
    backwards.Free()


def test_init_with_part_of_the_ranks(restartable, mpi):
    """Two disjoint sessions at the same time: even and odd ranks."""
    hvd = restartable
    if os.environ.get("SMDDP_MPI") == "off":
        pytest.skip("the ranks meet over TCP, all of them")
    hvd.shutdown()
    mine = [rank for rank in range(mpi.Get_size()) if rank % 2 == mpi.Get_rank() % 2]
    hvd.init(comm=mine)
    assert (hvd.rank(), hvd.size()) == (mine.index(mpi.Get_rank()), len(mine))
    assert hvd.allgather_object(mpi.Get_rank()) == mine


def test_import_loads_no_tensorflow():
    script = """
import sys
import smddp_tf as hvd
import smddp_tf.run
assert hvd.Average == 0 and "allreduce" in dir(hvd)
assert not {"tensorflow", "keras", "smddp_tf._core"} & set(sys.modules), sorted(sys.modules)
try:
    hvd.no_such_name
except AttributeError as error:
    print(error)
"""
    script = script.replace("import smddp_tf.run\n", "") if not _exists("smddp_tf.run") else script
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert "no_such_name" in done.stdout


def _exists(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def test_without_the_alias_no_variable_of_horovods_launcher_is_set(hvd):
    assert hvd.is_initialized()
    assert "HOROVOD_CROSS_RANK" not in os.environ

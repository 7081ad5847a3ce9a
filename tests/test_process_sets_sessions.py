"""Process sets from the start of a session, and at its end."""

from __future__ import annotations

import os
import time
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

from tests.native_module import ALLREDUCE, core, submit
from tests.reasons import BEFORE_INIT
from tests.support.process_sets import layout, mine

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


@pytest.fixture
def stopped(restartable: ModuleType) -> ModuleType:
    restartable.shutdown()
    return restartable


def test_sets_given_to_init(stopped, rank, size, mpi):
    hvd = stopped
    if size == 1:
        pytest.skip("one rank has no parts")
    sets = {name: hvd.ProcessSet(ranks) for name, ranks in layout(size).items()}
    hvd.init(process_sets=list(sets.values()))
    assert [process_set.process_set_id for process_set in sets.values()] == list(range(1, len(sets) + 1))
    for process_set in mine(sets):
        assert hvd.allgather_object(rank, process_set=process_set) == process_set.ranks
    hvd.shutdown()
    for process_set in sets.values():
        assert (process_set.process_set_id, process_set.size(), process_set.included()) == (None, None, None)
    with pytest.raises(ValueError, match="in use|" + BEFORE_INIT):
        hvd.allreduce(tf.ones(2), process_set=sets["low"])

    for bad, words in (
        ([hvd.ProcessSet([0]), hvd.ProcessSet([0])], "exists already"),
        ([hvd.ProcessSet([rank % 2])], r"rank 0 has ranks \[0\], rank 1 has ranks \[1\]"),
        ([hvd.ProcessSet([0])] if rank == 0 else None, "rank 1 has no process sets"),
        ([[0]], "`process_sets` must be a list"),
        ("static", "`process_sets` must be a list"),
    ):
        with pytest.raises(ValueError, match=words):
            hvd.init(process_sets=bad)
        assert not hvd.is_initialized()


def test_communicators_of_mpi4py(stopped, rank, size, mpi):
    """Every rank brings its own part of a split: all parts become sets. Ranks backwards: the communicator's order."""
    from mpi4py import MPI

    hvd = stopped
    if size == 1:
        pytest.skip("one rank has no parts")
    hvd.init(process_sets="dynamic")
    if os.environ.get("SMDDP_MPI") == "off":
        pytest.skip("the ranks exchange over TCP and have no communicators")
    color = min(rank, 2)  # 0, 1, and the rest
    part = mpi.Split(MPI.UNDEFINED if size == 3 and color == 2 else color, key=-rank)
    mine = hvd.add_process_set(hvd.ProcessSet(part))
    if part == MPI.COMM_NULL:
        assert mine.process_set_id is None
    else:
        assert mine.mpi_comm is part
        assert mine.ranks == (list(reversed(range(2, size))) if color == 2 else [rank])
        assert mine.rank() == part.Get_rank()
        assert hvd.allgather_object(rank, process_set=mine) == mine.ranks
        part.Free()
    assert len(hvd.process_set_ids()) == 1 + (3 if size > 3 else 2)


def test_communicators_given_to_init(stopped, rank, size, mpi):
    """The first is everybody, with ranks backwards; the others are sets, whose ranks are those of the first."""
    hvd = stopped
    if size == 1:
        pytest.skip("one rank has no parts")
    backwards, parts = mpi.Split(0, key=-rank), mpi.Split(rank % 2, key=rank)
    hvd.init(comm=[backwards, parts])
    me = hvd.rank()
    assert me == size - 1 - rank
    sets = hvd.get_process_set_ids_and_ranks()
    expected = [[size - 1 - r for r in range(first, size, 2)] for first in (0, 1)]
    assert sorted(ranks for number, ranks in sets.items() if number > 0) == sorted(expected)
    assert sets[0] == list(range(size))
    hvd.shutdown()
    backwards.Free()
    parts.Free()


def test_values_follow_the_session(stopped, size):
    hvd = stopped
    values = tf.function(lambda: (hvd.size_op(), hvd.process_set_included_op()))
    hvd.init()
    assert [int(value) for value in values()] == [size, 1]
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match=BEFORE_INIT):
        values()


def test_communicators_of_removed_sets_are_freed(stopped, rank, size, mpi):
    def handle() -> int:
        """Grows with the communicators that there are."""
        copy = mpi.Dup()
        number = copy.py2f()
        copy.Free()
        return number

    if size == 1:
        pytest.skip("needs a set that is not all ranks")
    hvd = stopped
    hvd.init(process_sets="dynamic")
    before = handle()
    for turn in range(20):
        ranks = [size - 1] if size == 2 else [turn % 2, size - 1]
        added = hvd.add_process_set(ranks)
        if added.included():
            summed = hvd.allreduce(tf.fill([3], float(rank + turn)), process_set=added, op=hvd.Sum)
            np.testing.assert_array_equal(summed, 3 * [float(sum(ranks) + turn * len(ranks))])
        assert hvd.remove_process_set(added)
    assert handle() < before + 10


def test_sets_end_with_the_session_of_all_ranks(stopped, rank, size, mpi):
    """Rank 0 leaves with something under way: that ends the session of all, and the sets without rank 0 as well."""
    hvd = stopped
    if size == 1:
        pytest.skip("nobody is left")
    hvd.init(process_sets="dynamic")
    high = hvd.add_process_set(range(1, size))
    mpi.barrier()  # all have it
    if rank == 0:
        brought = np.ones(2)
        never = submit(ALLREDUCE, "never", [(brought, brought)])
        hvd.shutdown()
        with pytest.raises(core().EngineError):
            never.wait(60.0)
        return

    def until_it_ends():
        for _ in range(3000):
            hvd.allreduce(tf.ones(2), process_set=high)
            time.sleep(0.01)

    with pytest.raises(tf.errors.OpError, match="The session of all ranks failed, and this process set with it: Rank"):
        until_it_ends()
    with pytest.raises(Exception, match="Rank 0"):
        hvd.add_process_set([1])

"""SmddpBarrier: nobody passes before the last rank has come, and a barrier that is given up is an error of all."""

from __future__ import annotations

import time

import pytest
import tensorflow as tf

from smddp_tf._native import loader

pytestmark = pytest.mark.ranks("2", "2+1")

LATE_SECONDS = 0.3


@pytest.mark.parametrize("late", ["first", "last"])
def test_all_wait_for_the_late_one(hvd, rank, size, mpi, run, late):
    """All ranks run on one machine, so they share a clock."""
    mpi.barrier()
    if rank == (0 if late == "first" else size - 1):
        time.sleep(LATE_SECONDS)

    def come():
        loader.op_library().smddp_barrier(tensor_name=f"late.{late}")
        return tf.constant(0)

    came = time.monotonic()
    run(come)
    passed = time.monotonic()
    assert min(mpi.allgather(passed)) >= max(mpi.allgather(came))


def test_a_barrier_of_a_process_set_waits_for_its_ranks_only(sets, rank):
    """Rank 0 comes to none of them."""
    high = sets["high"]
    if high.included():
        for number in range(3):
            loader.op_library().smddp_barrier(tensor_name=f"of a set.{number}", process_set=high.process_set_id)
    elif rank == 0:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Rank 0 is not a member"):
            loader.op_library().smddp_barrier(tensor_name="of a set.0", process_set=high.process_set_id)


def test_a_collective_of_the_same_name_is_a_disagreement(hvd, rank):
    ops = loader.op_library()
    call = {
        True: ops.smddp_barrier,
        False: lambda **name: ops.smddp_broadcast(tensors=[tf.zeros(3)], root_rank=0, **name),
    }
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"barrier.*rank 0|rank 0.*barrier"):
        call[rank == 0](tensor_name="mixed")

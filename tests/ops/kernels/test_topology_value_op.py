"""SmddpTopologyValue: what the ranks are when the op runs, not when its graph was traced."""

from __future__ import annotations

import pytest
import tensorflow as tf

from smddp_tf._native import loader
from tests.reasons import BEFORE_INIT

pytestmark = pytest.mark.ranks("2", "2+1")


def value(what: str, process_set: int = 0) -> tf.Tensor:
    return loader.op_library().smddp_topology_value(what=what, process_set=process_set)


def test_a_graph_outlives_its_session(restartable, mpi):
    """In the second session the ranks have the opposite order; without a session there is no answer."""
    hvd, world = restartable, mpi.Get_rank()
    ask = tf.function(lambda: [value(what) for what in ("rank", "size", "rank_in_set")])
    assert [int(one) for one in ask()] == [world, hvd.size(), world]
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match=BEFORE_INIT):
        ask()
    backwards = mpi.Split(0, key=-world)
    hvd.init(comm=backwards)
    turned = hvd.size() - 1 - world
    assert [int(one) for one in ask()] == [turned, hvd.size(), turned]
    hvd.shutdown()
    backwards.Free()


def test_of_a_process_set(sets, rank, size):
    high = sets["high"]
    number = high.process_set_id
    assert int(value("size", number)) == size - 1
    assert int(value("included", number)) == int(rank > 0)
    if rank > 0:
        assert int(value("rank_in_set", number)) == rank - 1
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Rank 0 is not a member"):
            value("rank_in_set", number)
    assert int(value("rank", number)) == rank  # among all


def test_of_a_set_that_is_none(hvd):
    assert int(value("included", 999)) == -3  # Horovod's number of an unknown set
    with pytest.raises(tf.errors.InvalidArgumentError, match="There is no process set 999"):
        value("size", 999)
    with pytest.raises(tf.errors.InvalidArgumentError, match="colour"):
        value("colour")

"""smddp_tf.elastic under mpirun: whatever is raised, and wherever, training ends as if nothing had been."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvd_keras
from smddp_tf import elastic
from smddp_tf._native import loader
from smddp_tf.elastic.commits import CommitFolder
from smddp_tf.elastic.state import HostUpdateResult
from smddp_tf.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from tests.support.trouble import Once

pytestmark = pytest.mark.ranks("2", "2+2")

STEPS = 8


def test_one_rank_fails_and_the_others_notice(hvd, rank, size):
    """The others wait in an allreduce; what the engine tells them means the same as HorovodInternalError."""
    if size == 1:
        pytest.skip("needs two ranks")
    trouble = Once(4, HorovodInternalError("only here") if rank == size - 1 else None)
    state = elastic.ObjectState(batch=0, total=0.0)

    @elastic.run
    def loop(state):
        while state.batch < STEPS:
            trouble(state.batch)
            state.total += float(hvd.allreduce(tf.constant(rank + state.batch + 1.0), op=hvd.Sum, name="elastic.total"))
            state.batch += 1
            state.commit()
        return state.total

    total = loop(state)
    assert total == sum(size * (batch + 1) + size * (size - 1) / 2 for batch in range(STEPS))
    assert trouble.seen.count(4) == 2
    assert hvd.is_initialized()


def test_a_function_traced_before_goes_on(hvd, rank, size):
    """What a script traces once, outside of the training function, works in the next session too."""
    variable = tf.Variable([1.0, 2.0])
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(1.0))
    traced = []

    @tf.function
    def step(x):
        traced.append(True)
        optimizer.apply_gradients([(x, variable)])

    trouble = Once(3, HorovodInternalError("in a step"))

    @elastic.run
    def loop(state):
        while state.batch < 5:
            step(tf.fill([2], state.batch * (rank + 1.0)))
            trouble(state.batch)
            state.batch += 1
            state.commit()

    optimizer.build([variable])
    loop(elastic.TensorFlowState([variable, *optimizer.variables], batch=0))
    assert len(traced) == 1
    assert trouble.seen == [0, 1, 2, 3, 3, 4]
    np.testing.assert_allclose(variable, np.array([1.0, 2.0]) - 10 * (size + 1) / 2)


def test_messages_about_hosts_reach_all_ranks_at_one_commit(hvd, rank):
    state = elastic.ObjectState(step=1)
    state.commit()
    if rank == 0:
        state.on_hosts_updated(1, HostUpdateResult.added)
        state.on_hosts_updated(2, HostUpdateResult.removed)
    state.step = 2
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert not caught.value.skip_sync
    state.step = 3
    state.restore()
    assert state.step == 2
    if rank == 0:
        state.on_hosts_updated(2, HostUpdateResult.added)  # not newer
    state.commit()
    if rank == 0:
        state.on_hosts_updated(3, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync
    state.on_hosts_updated(4)
    state.on_reset()
    state.commit()


def test_all_ranks_learn_that_a_commit_was_not_written(hvd, rank, tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError("no space left")

    monkeypatch.setattr(CommitFolder, "_store", full_disk)
    state = elastic.ObjectState(step=1 + rank)
    state.commit_to(tmp_path)
    state.commit()
    with pytest.raises(OSError, match="Rank 0 could not write a commit to .*: no space left"):
        state.commit()
    with pytest.raises(OSError, match="Rank 0 could not write a commit to .*: no space left"):
        state.commit(wait=True)
    loop = elastic.run(lambda state: state.commit())
    if rank == 0:
        with pytest.raises(OSError, match="Rank 0 could not write a commit to .*: no space left"):
            loop(state)
    else:
        assert loop(state) is None


def test_other_errors_pass(hvd, rank, size):
    state = elastic.ObjectState(bcast_object=lambda obj: obj, get_rank=lambda: rank)
    calls = []

    @elastic.run
    def wrong(state, error):
        calls.append(error)
        raise error

    engine_error = loader.core().EngineError
    passing = [
        ValueError("gave up a step"),
        engine_error("Mismatched ALLREDUCE tensor shapes"),
        tf.errors.FailedPreconditionError(None, None, "Mismatched gradient plans"),
        tf.errors.UnavailableError(None, None, "failed to connect to all addresses"),
    ]
    for error in passing:
        with pytest.raises(type(error)):
            wrong(state, error)
    assert len(calls) == len(passing)
    missing = engine_error("... has waited for 60 s: missing on rank 1")
    assert not elastic.running.is_lost_session(missing)  # the text decides nothing
    missing.reason = "timed_out"
    assert elastic.running.is_lost_session(missing)
    assert elastic.running.is_lost_session(tf.errors.AbortedError(None, None, "Rank 1 ... [smddp:step_given_up]"))
    assert not elastic.running.is_lost_session(tf.errors.AbortedError(None, None, "Rank 1 gave up a step: ..."))

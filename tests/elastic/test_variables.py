"""The variables of a state: of a session of TensorFlow 1, and what an interrupt does to them."""

from __future__ import annotations

import pytest
import tensorflow as tf

from smddp_tf import elastic
from smddp_tf.collectives.layouts import mark
from smddp_tf.exceptions import HostsUpdatedInterrupt

pytestmark = pytest.mark.ranks("2", "2+2")


@pytest.mark.parametrize("skip_sync", [False, True])
def test_interrupts_keep_the_state(hvd, rank, skip_sync):
    """HostsUpdatedInterrupt restores nothing; with `skip_sync` the ranks do not even compare notes."""
    variable = tf.Variable([rank + 1.0])
    state = elastic.TensorFlowState([variable], step=rank)
    raised = []

    @elastic.run
    def loop(state):
        if not raised:
            assert (float(variable[0]), state.step) == (1.0, 0), "sync gives all ranks what rank 0 has"
            variable.assign([10.0 * (rank + 1)])
            state.step = 5 + rank
            raised.append(True)
            raise HostsUpdatedInterrupt(skip_sync)
        return float(variable[0]), state.step

    # Attributes that were not committed go back in a sync, on rank 0 as well.
    assert loop(state) == ((10.0 * (rank + 1), 5 + rank) if skip_sync else (10.0, 0))


def test_variables_of_a_session(hvd, rank):
    """TensorFlow 1: the values live in a session."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("x", initializer=rank + 1.0, use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        state = elastic.TensorFlowState(session=session, step=0)
        state.sync()
        assert session.run(variable) == 1.0
        variable.load(7.0, session)
        state.restore()
        assert session.run(variable) == 1.0


def test_parts_do_not_move_to_other_processes(hvd, rank, monkeypatch):
    """A job in which other processes have the ranks has lost their parts, also where there are as many as before."""
    whole, part = tf.Variable([rank + 1.0]), tf.Variable([rank + 5.0])
    mark(part, object())
    for variables in ([whole], [whole, part]):
        elastic.TensorFlowState(variables).sync()
    assert (float(whole[0]), float(part[0])) == (1.0, rank + 5.0)
    monkeypatch.setattr("smddp_tf.rendezvous.rounds.has_changed", lambda: True)
    elastic.TensorFlowState([whole]).sync()
    with pytest.raises(RuntimeError, match="other processes are the ranks now"):
        elastic.TensorFlowState([whole, part]).sync()

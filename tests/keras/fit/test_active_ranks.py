"""What a step of the user's own is told about the ranks that still have data."""

from __future__ import annotations

from smddp_tf.keras.fit import active_ranks
from smddp_tf.keras.roles import running


def test_inside_of_a_step_and_outside_of_it() -> None:
    assert active_ranks.current() is None
    step = object()
    with running.within(active=step):
        assert active_ranks.current() is step
    assert active_ranks.current() is None

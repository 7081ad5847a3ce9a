"""What the launcher says of ranks that wait in `hvd.init`, by an invented clock."""

from __future__ import annotations

import pytest

from smddp_tf.run.launch import rank_states
from smddp_tf.run.launch.rank_states import RankStates


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(rank_states.time, "monotonic", lambda: now[0])
    return now


def test_for_whom_ranks_wait_is_said_once(clock: list[float]) -> None:
    states = RankStates(["localhost"] * 3)
    assert states.late_for_init() == ""
    for rank in (0, 2):
        states.enter_init(rank)
    clock[0] += 4.9
    assert states.late_for_init() == ""
    clock[0] += 0.2
    assert states.late_for_init() == "2 of 3 ranks wait in hvd.init() for rank 1."
    assert states.late_for_init() == ""


def test_a_rank_that_has_been_in_init_is_not_late(clock: list[float]) -> None:
    """Where `init` takes long itself, the ranks leave it one after the other; later calls need not be all ranks'."""
    states = RankStates(["localhost"] * 2)
    for rank in (0, 1):
        states.enter_init(rank)
    clock[0] += 6
    del states.in_init[1]
    assert states.late_for_init() == ""
    del states.in_init[0]
    states.enter_init(0)
    clock[0] += 6
    assert states.late_for_init() == ""


def test_a_launcher_that_ends_before_the_ranks_start_is_reported() -> None:
    states = RankStates(["localhost", "far"])
    states.started[0] = ("localhost", 7)
    text = states.not_started(255)
    assert text.startswith("rank 1 on far had not started when mpirun, or ssh, ended with exit code 255")
    assert "`ssh far true`" in text
    states.started[1] = ("far", 8)
    assert states.not_started(1) == ""

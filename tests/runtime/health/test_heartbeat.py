"""Who lives, by an invented clock: what each rank concludes from the signs it sees."""

from __future__ import annotations

import pytest

from tests import native_module

pytestmark = pytest.mark.native

_core = native_module.core()
HOSTS = ["a:boot:1", "a:boot:1", "b:boot:1", "b:boot:1", "c:boot:1"]
TIMEOUT = 15.0


def watch(rank: int, until: float, step: float = 0.2, heard: dict[int, list[float]] | None = None):
    """A watch that was ticked from 1 s on, and heard of ranks at the given seconds."""
    heartbeat = _core.Heartbeat(rank, HOSTS, TIMEOUT)
    now = 1.0
    while now <= until:
        heartbeat.tick(now)
        for sender, times in (heard or {}).items():
            if any(now - step < at <= now for at in times):
                heartbeat.heard(sender, now)
        now += step
    return heartbeat


def every_second(until: float) -> list[float]:
    return [float(second) for second in range(1, int(until) + 1)]


def test_a_mate_that_beats_lives() -> None:
    beats = {2: every_second(60), 4: every_second(60)}
    assert watch(0, 60, heard=beats).find_lost(60.1, [(60.0, False), (59.5, False)]) is None


def test_a_silent_mate_is_named_before_the_timeout() -> None:
    beats = {2: every_second(60), 4: every_second(60)}
    heartbeat = watch(0, 60, heard=beats)
    assert heartbeat.find_lost(60.0, [(60.0, False), (60.0 - 12.2, False)]) is None
    said = heartbeat.find_lost(60.0, [(60.0, False), (60.0 - 12.7, False)])
    assert said.startswith("No sign of life from rank 1 (host a) for 12.7 s (SMDDP_HEARTBEAT_TIMEOUT)")


def test_a_dead_mate_is_named_at_the_second_look() -> None:
    heartbeat = watch(3, 2)
    signs = [(2.0, True), (2.0, False)]
    assert heartbeat.find_lost(2.1, signs) is None  # a goodbye may be on its way
    assert heartbeat.find_lost(2.2, signs).startswith("Rank 2 (host b) has died")


def test_a_mate_that_has_left_is_not_missed() -> None:
    heartbeat = watch(3, 30, heard={0: every_second(30), 4: every_second(30)})
    heartbeat.left(2)
    for now in (30.1, 30.2):
        assert heartbeat.find_lost(now, [(2.0, True), (30.0, False)]) is None


def test_all_dead_mates_are_named() -> None:
    heartbeat = _core.Heartbeat(2, ["a", "a", "a"], TIMEOUT)
    heartbeat.tick(1.0)
    signs = [(1.0, True), (1.0, True), (1.0, False)]
    heartbeat.find_lost(1.0, signs)
    assert heartbeat.find_lost(1.1, signs).startswith("Ranks 0, 1 (host a) have died: their processes")


def test_a_silent_node_is_named_by_the_speakers_of_others() -> None:
    heard = {2: every_second(20), 4: every_second(60)}
    mates = [(60.0, False), (60.0, False)]
    said = watch(0, 34.6, heard=heard).find_lost(34.6, mates)
    assert said.startswith("No sign of life from ranks 2, 3 (host b) for 14.")
    assert watch(0, 33.4, heard=heard).find_lost(33.4, mates) is None
    assert watch(1, 34.6, heard=heard).find_lost(34.6, mates) is None  # nobody speaks to it


def test_any_rank_shows_that_its_node_lives() -> None:
    heard = {3: every_second(60), 4: every_second(60)}
    assert watch(0, 60, heard=heard).find_lost(60.0, [(60.0, False), (60.0, False)]) is None


def test_the_own_pause_is_forgiven() -> None:
    """A process that was stopped for a minute must not take all others for silent."""
    heartbeat = watch(0, 10, heard={2: every_second(10), 4: every_second(10)})
    heartbeat.tick(70.0)
    assert heartbeat.find_lost(70.0, [(10.0, False), (10.0, False)]) is None
    now = 70.0
    while now < 84.0:
        now += 0.2
        heartbeat.tick(now)
    assert "rank 1" in heartbeat.find_lost(now, [(10.0, False), (10.0, False)])


def test_speakers_beat_to_speakers_once_a_second() -> None:
    heartbeat = watch(2, 5)
    assert heartbeat.due(5.0) == [0, 4]
    assert heartbeat.due(5.5) == []
    assert heartbeat.due(6.1) == [0, 4]
    assert watch(3, 5).due(5.0) == []


def test_the_next_rank_speaks_when_a_speaker_has_left() -> None:
    heartbeat = watch(3, 5)
    heartbeat.left(2)
    heartbeat.left(0)
    heartbeat.left(4)
    assert heartbeat.due(5.0) == [1]


def test_a_speaker_at_the_end_of_its_program_speaks_until_all_have_left() -> None:
    heartbeat = watch(3, 5)
    heartbeat.left(2, reads=True)
    assert heartbeat.due(5.0) == []
    heartbeat = watch(2, 60)
    for rank in (0, 1):
        heartbeat.left(rank, reads=True)
    assert heartbeat.due(60.0) == [0, 4]
    heartbeat.tick(120.0)
    heartbeat.tick(120.2)
    heartbeat.heard(4, 134.0)
    now = 120.2
    while now < 134.0:
        now += 0.2
        heartbeat.tick(now)
    assert heartbeat.find_lost(now, [(now, False), (now, False)]) is None  # nobody is missed on a node that all left


def test_a_new_speaker_does_not_miss_what_was_sent_to_the_one_before() -> None:
    """Rank 2 leaves after a minute, in which the other nodes beat to it and not to rank 3."""
    heartbeat = watch(3, 60)
    heartbeat.left(2)
    now = 60.0
    while now < 72.0:
        now += 0.2
        heartbeat.tick(now)
        assert heartbeat.find_lost(now, [(60.0, False), (now, False)]) is None
    while now < 74.0:
        now += 0.2
        heartbeat.tick(now)
    said = heartbeat.find_lost(now, [(60.0, False), (now, False)])
    assert said.startswith("No sign of life from ranks 0, 1 (host a) for 14.")


def test_no_timeout_still_sees_the_dead() -> None:
    heartbeat = _core.Heartbeat(0, ["a", "a", "b"], 0.0)
    for now in (1.0, 1000.0):
        heartbeat.tick(now)
    assert heartbeat.due(1000.0) == []
    assert heartbeat.find_lost(1000.0, [(0.0, False), (0.0, False)]) is None
    heartbeat.find_lost(1000.0, [(0.0, False), (0.0, True)])
    assert heartbeat.find_lost(1000.1, [(0.0, False), (0.0, True)]).startswith("Rank 1 (host a) has died")

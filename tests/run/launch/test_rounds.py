"""Who trains together in a round, in which order, and at which addresses."""

from __future__ import annotations

from smddp_tf.run.launch.rounds import Joined, Rounds


def join(
    rounds: Rounds, number: int, host: str, state: bool = True, address: str = "10.0.0.9", failure: str = ""
) -> None:
    told = {"host": host, "port": 4000 + number, "has_state": state, "failure": failure}
    rounds.joined[number] = Joined(50 + number, address, "127.0.0.1" if address[:2] == "12" else "10.0.0.1", **told)


def test_survivors_keep_their_order_and_hosts_are_neighbours() -> None:
    rounds = Rounds(range(4))
    for number, host in enumerate("aabb"):
        join(rounds, number, host, state=False)
    assert [answer["place"] for _, answer in rounds.begin()] == [(0, 4, 0, 2), (1, 4, 1, 2), (2, 4, 0, 2), (3, 4, 1, 2)]
    join(rounds, 5, "b", state=False)  # the first to join, and new
    join(rounds, 4, "a", state=False)
    assert rounds.waiting == [5, 4]
    for number, host in ((3, "b"), (2, "b"), (1, "a")):  # without 0
        join(rounds, number, host)
    answers = rounds.begin()
    assert rounds.members == [1, 4, 2, 3, 5]
    assert [peer for peer, _ in answers] == [51, 54, 52, 53, 55]
    assert rounds.first_peer == 51
    assert [answer["place"] for _, answer in answers] == [
        (0, 5, 0, 2),
        (1, 5, 1, 2),
        (2, 5, 0, 3),
        (3, 5, 1, 3),
        (4, 5, 2, 3),
    ]
    assert (rounds.begun, rounds.waiting, rounds.joined) == (2, [], {})


def test_rank_0_has_the_state() -> None:
    """A process whose first round was lost before it had the state comes after one that has it."""
    rounds = Rounds(range(2))
    join(rounds, 0, "a", state=False)
    join(rounds, 1, "b")
    rounds.begin()
    assert rounds.members == [1, 0]


def test_addresses_that_lead_there_only_are_replaced() -> None:
    rounds = Rounds(range(2))
    join(rounds, 0, "a", address="127.0.0.1")
    join(rounds, 1, "b", address="fe80::9")
    assert rounds.begin()[0][1]["addresses"] == ["10.0.0.1:4000", "[fe80::9]:4001"]
    join(rounds, 0, "a", address="127.0.0.1")
    assert rounds.begin()[0][1]["addresses"] == ["127.0.0.1:4000"]


def test_who_is_silent() -> None:
    """What the engine says of ranks is told of their processes; of one that has died its supervisor tells."""
    rounds = Rounds(range(5))
    for number in range(5):
        join(rounds, number, "aabbb"[number], state=number != 0)  # so that 0 is rank 1
    rounds.begin()
    assert rounds.members == [1, 0, 2, 3, 4]
    join(rounds, 4, "b", failure="No sign of life from ranks 0, 1 (host a5) for 14.2 s (SMDDP_HEARTBEAT_TIMEOUT)")
    join(rounds, 3, "b", failure="Rank 2 (host b) has died")
    assert rounds.silent() == {1, 0}
    join(rounds, 4, "b", failure="No answer from ranks 1, 2 (host b) for 2.3 s (SMDDP_HEARTBEAT_TIMEOUT)")
    join(rounds, 3, "b", failure="No sign of life from rank 3 (host b) for 14.2 s (SMDDP_HEARTBEAT_TIMEOUT)")
    assert rounds.silent() == {0, 2, 3}
    assert rounds.silent("answer") == {0, 2}

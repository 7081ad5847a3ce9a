"""The ends of the ranks, and which of them is named."""

from __future__ import annotations

from smddp_tf.link.ends import End, Ends

BYSTANDER = End(1, because="Rank 1 (host b) has ended its session")


def first(*ends: tuple[int, End]) -> int | None:
    heard = Ends()
    for rank, end in ends:
        heard.add(rank, End.decode(end.encode()))
    failed = heard.first_failed()
    return failed[0] if failed else None


def test_the_rank_that_raised_is_named_whoever_ends_first() -> None:
    raised = End(1, raised="ValueError: my bug")
    assert first((0, BYSTANDER), (2, BYSTANDER), (1, raised)) == 1
    assert first((1, raised), (0, BYSTANDER)) == 1
    # Its own session has failed too, but of what it raised.
    assert first((0, BYSTANDER), (1, End(1, "ValueError: my bug", "The session has failed"))) == 1


def test_a_rank_that_says_nothing_has_ended_by_itself() -> None:
    assert first((0, BYSTANDER), (2, End(-9))) == 2
    assert first((0, BYSTANDER), (2, End(3)), (3, End(4))) == 2
    assert first((2, End(0)), (0, BYSTANDER), (3, BYSTANDER)) == 0  # the cause ended well, or was never heard of
    assert first((0, End(0)), (1, End(0))) is None

"""Messages between launcher and ranks: whoever has no key can neither forge nor repeat them."""

from __future__ import annotations

import itertools
import struct

import pytest

from smddp_tf.link.channel import Channel, Forged, Kind

HEAD = struct.Struct("!B?H")


def channels(rank_key: str = "job") -> tuple[Channel, Channel]:
    """Those of a launcher and of a rank, which have exchanged their nonces."""
    launcher, rank = Channel("job", is_launcher=True), Channel(rank_key, is_launcher=False)
    assert list(launcher.feed(rank.nonce)) == list(rank.feed(launcher.nonce)) == [(Kind.NONCE, b"")]
    return launcher, rank


@pytest.mark.parametrize("size", [0, 1, 1000, 65_535, 65_536, 200_000])
def test_messages_arrive_however_they_are_cut(size: int) -> None:
    launcher, rank = channels()
    bodies = [bytes(number % 251 for number in range(at, at + size)) for at in range(3)]
    messages = [(Kind.PROOF, b""), *((Kind.RESULT, body) for body in bodies)]
    sent = b"".join(itertools.chain.from_iterable(rank.pack(*message) for message in messages))
    step = max(1, len(sent) // 37)
    found = [message for at in range(0, len(sent), step) for message in launcher.feed(sent[at : at + step])]
    assert found == messages


def records_of(channel: Channel) -> list[bytes]:
    messages = [(Kind.PROOF, b""), (Kind.HELLO, b"body"), (Kind.STDOUT, b"more"), (Kind.END, b"end")]
    return [record for message in messages for record in channel.pack(*message)]


@pytest.mark.parametrize("what", ["changed", "kind", "repeated", "left out", "exchanged", "sent back", "wrong key"])
def test_what_the_rank_has_not_sent_is_not_taken(what: str) -> None:
    launcher, rank = channels("another job" if what == "wrong key" else "job")
    records = records_of(rank)
    if what == "changed":
        records[2] = records[2].replace(b"more", b"morE")
    elif what == "kind":
        records[2] = bytes([Kind.END]) + records[2][1:]
    elif what == "repeated":
        records.insert(2, records[1])
    elif what == "left out":
        del records[2]
    elif what == "exchanged":
        records[2:] = reversed(records[2:])
    elif what == "sent back":  # what the launcher itself has sent
        records[2:] = records_of(launcher)[2:]
    found: list[tuple[int, bytes]] = []

    def read() -> None:
        for record in records:
            found.extend(launcher.feed(record))

    with pytest.raises(Forged):
        read()
    assert found == [(Kind.PROOF, b""), (Kind.HELLO, b"body")][: 0 if what == "wrong key" else 2]


def test_records_of_one_connection_are_forged_on_another() -> None:
    (_, rank), (launcher, _) = channels(), channels()
    with pytest.raises(Forged):
        list(launcher.feed(records_of(rank)[0]))


def test_a_message_in_place_of_the_proof_is_refused_before_it_is_held() -> None:
    launcher, rank = channels()
    [record] = rank.pack(Kind.RESULT, b"x" * 60_000)
    with pytest.raises(Forged):
        list(launcher.feed(record[: HEAD.size]))

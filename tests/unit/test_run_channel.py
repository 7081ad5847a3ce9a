"""The line between launcher and ranks: who is trusted, and what a stranger can do to it."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time

import pytest

from smddp_tf.run import channel
from smddp_tf.run.caller import Caller
from smddp_tf.run.channel import ADDRESS, END, HELLO, KEY, PAYLOAD, RESULT, STDOUT, TASK, Frame, Switchboard
from smddp_tf.run.errors import LaunchError
from smddp_tf.run.records import Forged, Keys, Reader, Writer


def frames_until(board: Switchboard, count: int) -> list:
    found, give_up_at = [], time.monotonic() + 1
    while len(found) < count and time.monotonic() < give_up_at:
        found += board.frames(0.05)
    return found


def in_thread(board: Switchboard, work) -> list:
    """What `work` returns or raises while the board listens."""
    results: list = []

    def target() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    give_up_at = time.monotonic() + 20
    while thread.is_alive() and time.monotonic() < give_up_at:
        for frame in board.frames(0.05):
            if frame.kind == TASK:
                board.send(frame.peer, PAYLOAD, b"work" * 100_000)
    thread.join(1)
    return results


def test_channel_both_ways() -> None:
    with Switchboard(["127.0.0.1"]) as board:
        environment = {ADDRESS: f"127.0.0.1:1,{board.addresses}", KEY: board.key}  # nobody listens on port 1

        def work() -> bytes:
            caller = Caller(environment)
            caller.send(TASK, b"0")
            return caller.receive(10)

        assert in_thread(board, work) == [b"work" * 100_000]


SECRET = b"job"


def ends(secret: bytes = SECRET) -> tuple[Keys, Keys]:
    """The keys of a launcher and of a rank."""
    nonces = (b"l" * 16, b"r" * 16)
    return Keys(SECRET, *nonces), Keys(secret, *nonces)


@pytest.mark.parametrize("size", [0, 1, 1000, 65_535, 65_536, 200_000])
def test_frames_arrive_however_they_are_cut(size: int) -> None:
    launcher, rank = ends()
    writer, reader = Writer(rank.to_launcher), Reader(launcher.to_launcher)
    bodies = [bytes(number % 251 for number in range(at, at + size)) for at in range(3)]
    sent = b"".join(itertools.chain.from_iterable(writer.records(RESULT, body) for body in bodies))
    step = max(1, len(sent) // 37)
    found = [frame for at in range(0, len(sent), step) for frame in reader.frames(sent[at : at + step])]
    assert found == [(RESULT, body) for body in bodies]


def stream(kinds: list[int], key: bytes) -> list[bytes]:
    writer = Writer(key)
    return [record for kind in kinds for record in writer.records(kind, b"body %d" % kind)]


@pytest.mark.parametrize("what", ["changed", "kind", "repeated", "left out", "exchanged", "sent back", "other job"])
def test_what_the_rank_has_not_sent_is_not_taken(what: str) -> None:
    launcher, rank = ends(b"another job" if what == "other job" else SECRET)
    records = stream([HELLO, STDOUT, END], rank.to_launcher)
    if what == "changed":
        records[1] = records[1].replace(b"body", b"bodY")
    elif what == "kind":
        records[1] = bytes([END]) + records[1][1:]
    elif what == "repeated":
        records.insert(1, records[0])
    elif what == "left out":
        del records[1]
    elif what == "exchanged":
        records[1:] = reversed(records[1:])
    elif what == "sent back":  # what the launcher itself has said
        records[1:] = stream([PAYLOAD] * 2, launcher.to_rank)[1:]
    reader, found = Reader(launcher.to_launcher), []

    def read() -> None:
        for record in records:
            found.extend(reader.frames(record))

    with pytest.raises(Forged):
        read()
    assert found == [(HELLO, b"body %d" % HELLO)][: 0 if what == "other job" else 1]


def test_both_sides_and_all_connections_have_keys_of_their_own() -> None:
    first, second = Keys(SECRET, b"1" * 16, b"2" * 16), Keys(SECRET, b"2" * 16, b"1" * 16)
    of_both = [(keys.proof_of_rank, keys.proof_of_launcher, keys.to_launcher, keys.to_rank) for keys in (first, second)]
    assert len({*of_both[0], *of_both[1]}) == 8


def port_of(board: Switchboard) -> int:
    return int(board.addresses.rpartition(":")[2])


def test_a_forged_frame_ends_the_line() -> None:
    """Whoever can write into a connection that stands cannot speak for the rank."""
    with Switchboard(["127.0.0.1"]) as board:

        def work() -> None:
            caller = Caller({ADDRESS: board.addresses, KEY: board.key})
            caller.send(HELLO, b"rank")
            caller._link.sendall(struct.pack("!B?H", RESULT, False, 4) + b"evil" + b"s" * 32)
            assert caller._link.recv(1) == b""

        thread = threading.Thread(target=work)
        thread.start()
        frames = frames_until(board, 2)
        thread.join(10)
        assert not thread.is_alive()
    assert frames == [Frame(0, HELLO, b"rank"), Frame(0, END, b"")]


def test_strangers_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_STRANGER_SECONDS", 0.3)
    with Switchboard(["127.0.0.1"]) as board:
        silent = socket.create_connection(("127.0.0.1", port_of(board)), timeout=10)
        assert frames_until(board, 1) == []
        assert len(silent.recv(100)) == 16  # asked for a proof,
        assert silent.recv(100) == b""  # which did not come
        silent.close()


def test_many_strangers_do_not_keep_a_rank_out() -> None:
    with Switchboard(["127.0.0.1"], ranks=2) as board:
        crowd = []
        for _ in range(300):
            crowd.append(socket.create_connection(("127.0.0.1", port_of(board)), timeout=10))
            list(board.frames(0))
        crowd[-1].sendall(b"x" * 30)  # no more than a part of a proof is kept
        list(board.frames(0.05))
        assert len(board._strangers) <= 100
        assert max(len(peer.received) for peer in board._strangers.values()) <= 48

        def work() -> bytes:
            caller = Caller({ADDRESS: board.addresses, KEY: board.key})
            caller.send(TASK, b"0")
            return caller.receive(10)

        assert in_thread(board, work) == [b"work" * 100_000]
        for one in crowd:
            one.close()


def test_a_stranger_that_resets_its_connection_harms_nobody() -> None:
    with Switchboard(["127.0.0.1"]) as board:
        for _ in range(20):
            rude = socket.create_connection(("127.0.0.1", port_of(board)))
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rude.close()
        assert frames_until(board, 1) == []
        assert board.connected == 0


def test_channel_does_not_trust_strangers() -> None:
    with Switchboard(["127.0.0.1"]) as board:
        [error] = in_thread(board, lambda: Caller({ADDRESS: board.addresses, KEY: "guessed"}))
        assert isinstance(error, LaunchError)
        stranger = socket.create_connection(("127.0.0.1", int(board.addresses.rpartition(":")[2])))
        stranger.sendall(b"x" * 48 + bytes([STDOUT]) + (4).to_bytes(8, "big") + b"evil")
        assert frames_until(board, 1) == []
        stranger.close()
        assert board.connected == 0


def test_a_rank_does_not_trust_another_launcher() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            link, _ = server.accept()
            link.sendall(b"n" * 16)
            link.recv(48)
            link.sendall(b"p" * 32)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(LaunchError, match="not this job's launcher"):
            Caller({ADDRESS: f"127.0.0.1:{server.getsockname()[1]}", KEY: "key"})
        thread.join(10)

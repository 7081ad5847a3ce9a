"""The connections between launcher and ranks: who is trusted, and what somebody without the key can do to them."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.link import server as server_module
from smddp_tf.run.link.channel import ADDRESS, KEY, Channel, Forged, Kind
from smddp_tf.run.link.client import ControlClient
from smddp_tf.run.link.server import ControlServer, Frame

HEAD = struct.Struct("!B?H")


def local_server(**arguments: Any) -> ControlServer:
    return ControlServer(["127.0.0.1"], **arguments)


def environment_of(server: ControlServer, **changed: str) -> dict[str, str]:
    return {ADDRESS: server.addresses, KEY: server.key, **changed}


def connection_to(server: ControlServer) -> socket.socket:
    """A connection of somebody who does not know the key."""
    return socket.create_connection(("127.0.0.1", int(server.addresses.rpartition(":")[2])), timeout=10)


def frames_until(server: ControlServer, count: int) -> list[Frame]:
    found, give_up_at = [], time.monotonic() + 1
    while len(found) < count and time.monotonic() < give_up_at:
        found += server.frames(0.05)
    return found


def in_thread(server: ControlServer, work: Callable[[], object]) -> list[object]:
    """What `work` returns or raises while the server answers."""
    results: list[object] = []

    def target() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    give_up_at = time.monotonic() + 20
    while thread.is_alive() and time.monotonic() < give_up_at:
        for frame in server.frames(0.05):
            if frame.kind == Kind.TASK:
                server.send(frame.peer, Kind.PAYLOAD, b"work" * 100_000)
    thread.join(1)
    return results


def asked_for_work(environment: dict[str, str]) -> bytes:
    client = ControlClient(environment)
    client.send(Kind.TASK, b"0")
    return client.receive(10)


def test_messages_go_both_ways_and_the_next_address_is_tried() -> None:
    with local_server() as server:
        environment = environment_of(server, **{ADDRESS: f"127.0.0.1:1,{server.addresses}"})  # nobody is at port 1
        assert in_thread(server, lambda: asked_for_work(environment)) == [b"work" * 100_000]


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


def test_a_forged_record_ends_the_connection() -> None:
    """Whoever can write into a connection of a rank cannot speak for it."""
    with local_server() as server:

        def work() -> None:
            client = ControlClient(environment_of(server))
            client.send(Kind.HELLO, b"rank")
            client._link.sendall(HEAD.pack(Kind.RESULT, False, 4) + b"evil" + b"s" * 32)
            assert client._link.recv(1) == b""

        thread = threading.Thread(target=work)
        thread.start()
        frames = frames_until(server, 2)
        thread.join(10)
        assert not thread.is_alive()
    assert frames == [Frame(0, Kind.HELLO, b"rank"), Frame(0, Kind.CLOSED, b"")]


def test_a_silent_connection_delays_nobody_and_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with local_server() as server, connection_to(server) as silent:
        assert in_thread(server, lambda: asked_for_work(environment_of(server))) == [b"work" * 100_000]
        assert len(server._pending) == 1
        monkeypatch.setattr(server_module, "_PROOF_SECONDS", 0.1)
        time.sleep(0.1)
        frames_until(server, 2)
        assert len(silent.recv(100)) == 16  # the nonce
        assert silent.recv(100) == b""


def test_many_connections_without_a_proof_do_not_keep_a_rank_out() -> None:
    with local_server(ranks=2) as server:
        crowd = []
        for _ in range(300):
            crowd.append(connection_to(server))
            list(server.frames(0))
        crowd[-1].sendall(b"x" * 100_000)
        list(server.frames(0.05))
        assert len(server._pending) <= 2 + 64
        assert max(len(peer.channel._received) for peer in server._pending.values()) <= 64
        assert in_thread(server, lambda: asked_for_work(environment_of(server))) == [b"work" * 100_000]
        for one in crowd:
            one.close()


def test_an_oversized_message_without_a_proof_is_refused() -> None:
    with local_server() as server, connection_to(server) as link:
        link.sendall(b"n" * 16 + HEAD.pack(Kind.PROOF, True, 65_535) + b"x" * 65_535)
        assert frames_until(server, 1) == []
        assert not server._pending
        assert server.connected == 0


def test_a_connection_that_is_reset_harms_nobody() -> None:
    with local_server() as server:
        for _ in range(20):
            link = connection_to(server)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.close()
        assert frames_until(server, 1) == []
        assert server.connected == 0


def test_a_rank_with_a_wrong_key_is_refused() -> None:
    with local_server() as server:
        [error] = in_thread(server, lambda: ControlClient(environment_of(server, **{KEY: "guessed"})))
        assert isinstance(error, LaunchError)
        assert "the launcher closed the connection" in str(error)
        assert KEY in str(error)
        assert frames_until(server, 1) == []
        assert server.connected == 0


def answered_by(answer: Callable[[socket.socket], object]) -> None:
    """Connects a rank to a server that is not the launcher."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pretend() -> None:
            with suppress(OSError):  # the listener is closed at the end
                while True:
                    link, _ = listener.accept()
                    with link:
                        answer(link)

        threading.Thread(target=pretend, daemon=True).start()
        ControlClient({ADDRESS: f"127.0.0.1:{listener.getsockname()[1]}", KEY: "key"})


@pytest.mark.parametrize("at_once", [False, True])
def test_a_rank_does_not_trust_another_launcher(at_once: bool) -> None:
    def answer(link: socket.socket) -> None:
        nonce, proof = b"n" * 16, HEAD.pack(Kind.PROOF, False, 0) + b"s" * 32
        link.sendall(nonce + proof if at_once else nonce)
        received = b""
        while len(received) < 16 + HEAD.size + 32 and (chunk := link.recv(100)):  # the rank's nonce and proof
            received += chunk
        if not at_once:
            link.sendall(proof)

    with pytest.raises(LaunchError, match="not this job's launcher"):
        answered_by(answer)


def test_a_rank_does_not_wait_long_for_a_silent_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smddp_tf.run.link.client._CONNECT_SECONDS", 0.2)
    with pytest.raises(LaunchError, match=r"does not answer \(timed out\)"):
        answered_by(lambda link: time.sleep(0.5))

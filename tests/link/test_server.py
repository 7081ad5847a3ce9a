"""The launcher's end of the connections to its ranks."""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
import time

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.link import server as server_module
from smddp_tf.link.channel import Kind
from smddp_tf.link.client import ControlClient
from smddp_tf.link.server import ControlServer, Frame
from tests.link.servers import asked_for_work, frames_until, in_thread, local_server
from tests.waiting import until


def test_a_host_without_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(LaunchError, match=r"listen on 127\.0\.0\.1, port any, .*need the address 127\.0\.0\.1"):
        ControlServer(["127.0.0.1"])


HEAD = struct.Struct("!B?H")


def connection_to(server: ControlServer) -> socket.socket:
    """A connection of somebody who does not know the key."""
    return socket.create_connection(("127.0.0.1", int(server.addresses.rpartition(":")[2])), timeout=10)


def test_a_forged_record_ends_the_connection() -> None:
    """Whoever can write into a connection of a rank cannot speak for it."""
    with local_server() as server:

        def work() -> None:
            client = ControlClient(server.addresses, server.key)
            client.send(Kind.HELLO, b"rank")
            client._link.sendall(HEAD.pack(Kind.RESULT, False, 4) + b"evil" + b"s" * 32)
            assert client._link.recv(1) == b""

        thread = threading.Thread(target=work)
        thread.start()
        frames, give_up_at = list[Frame](), time.monotonic() + 20
        while thread.is_alive() and time.monotonic() < give_up_at:
            frames += server.frames(0.05)
        assert not thread.is_alive()
        assert not server.connected
    assert frames == [Frame(0, Kind.HELLO, b"rank")]


DROP_ALL = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # a program of one instruction: accept 0 bytes
SO_ATTACH_FILTER = 26


@pytest.mark.parametrize("answers", [True, False])
def test_the_silence_of_a_host_is_not_that_of_a_process(answers: bool) -> None:
    """The client reads nothing. Its system acknowledges what comes, or, as if it were cut off, does not."""
    with local_server() as server:
        clients = in_thread(server, lambda: ControlClient(server.addresses, server.key))
        client = clients[0]
        assert isinstance(client, ControlClient)
        peer = next(iter(server._peers))
        if not answers:
            program = struct.pack("HL", 1, ctypes.addressof(DROP_ALL))
            client._link.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        until(lambda: server.silence_of(peer) >= 0.3)  # nothing was sent
        sent = time.monotonic()
        server.send(peer, Kind.SIGNAL, b"0")
        if answers:
            until(lambda: server.silence_of(peer) < time.monotonic() - sent + 0.1)
        else:
            time.sleep(0.05)
            so_far = time.monotonic() - sent
            assert server.silence_of(peer) >= so_far + 0.25
        client.close()


def test_a_silent_connection_delays_nobody_and_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with local_server() as server, connection_to(server) as silent:
        assert in_thread(server, lambda: asked_for_work(server.addresses, server.key)) == [b"work" * 100_000]
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
        assert in_thread(server, lambda: asked_for_work(server.addresses, server.key)) == [b"work" * 100_000]
        for one in crowd:
            one.close()


def test_an_oversized_message_without_a_proof_is_refused() -> None:
    with local_server() as server, connection_to(server) as link:
        link.sendall(b"n" * 16 + HEAD.pack(Kind.PROOF, True, 65_535) + b"x" * 65_535)
        assert frames_until(server, 1) == []
        assert not server._pending
        assert not server.connected


def test_a_connection_that_is_reset_harms_nobody() -> None:
    with local_server() as server:
        for _ in range(20):
            link = connection_to(server)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.close()
        assert frames_until(server, 1) == []
        assert not server.connected

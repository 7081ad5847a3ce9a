"""A rank's end of the connection to the launcher, and launchers that are not its own."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from smddp_tf.link.channel import Kind
from smddp_tf.link.client import ControlClient
from tests.link.servers import asked_for_work, frames_until, in_thread, local_server

HEAD = struct.Struct("!B?H")


def test_messages_go_both_ways_and_the_next_address_is_tried() -> None:
    with local_server() as server:
        addresses = f"127.0.0.1:1,{server.addresses}"  # nobody is at port 1
        assert in_thread(server, lambda: asked_for_work(addresses, server.key)) == [b"work" * 100_000]


def test_a_rank_with_a_wrong_key_is_refused() -> None:
    with local_server() as server:
        [error] = in_thread(server, lambda: ControlClient(server.addresses, "guessed"))
        assert isinstance(error, OSError)
        assert "the other side closed the connection, as it does where the keys differ" in str(error)
        assert frames_until(server, 1) == []
        assert not server.connected


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
        ControlClient(f"127.0.0.1:{listener.getsockname()[1]}", "key")


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

    with pytest.raises(OSError, match="does not know this job's key"):
        answered_by(answer)


def until_it_ends(link: socket.socket) -> None:
    while link.recv(100):
        pass


def test_a_rank_does_not_wait_long_for_a_silent_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smddp_tf.link.client._CONNECT_SECONDS", 0.2)
    with pytest.raises(OSError, match=r"^127.0.0.1:\d+: timed out$"):
        answered_by(until_it_ends)


def test_a_server_that_cannot_be_reached_is_the_reason_alone() -> None:
    """What to do depends on who should listen there, a launcher or rank 0: the caller says it."""
    with pytest.raises(OSError, match=r"^127.0.0.1:1: Connection refused$"):
        ControlClient("127.0.0.1:1", "key", 0.1)

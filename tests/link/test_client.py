"""A rank's end of the connection to the launcher, and launchers that are not its own."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import ADDRESS, KEY, Kind
from smddp_tf.link.client import ControlClient
from tests.link.servers import asked_for_work, environment_of, frames_until, in_thread, local_server

HEAD = struct.Struct("!B?H")


def test_messages_go_both_ways_and_the_next_address_is_tried() -> None:
    with local_server() as server:
        environment = environment_of(server, **{ADDRESS: f"127.0.0.1:1,{server.addresses}"})  # nobody is at port 1
        assert in_thread(server, lambda: asked_for_work(environment)) == [b"work" * 100_000]


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


def until_it_ends(link: socket.socket) -> None:
    while link.recv(100):
        pass


def test_a_rank_does_not_wait_long_for_a_silent_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smddp_tf.link.client._CONNECT_SECONDS", 0.2)
    with pytest.raises(LaunchError, match=r"does not answer \(timed out\)"):
        answered_by(until_it_ends)

"""The rank's side of rounds: what it tells the launcher, and what it takes from the answer."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import ADDRESS, KEY, Kind
from smddp_tf.link.server import ControlServer
from smddp_tf.rendezvous import rounds

ANSWER = {"place": [1, 3, 0, 2], "addresses": ["h0:1", "h1:2", "h2:3"], "nonce": "ab" * 32, "members": [1, 4, 2]}


class Launcher:
    """Answers each `JOIN` with the next of `answers`, a list of messages; None ends the connection."""

    def __init__(self, answers: list[list[object] | None]) -> None:
        self.server, self.heard = ControlServer(["127.0.0.1"]), list[dict]()
        self._answers, self._over = answers, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        place = {"SMDDP_RUN_NUMBER": "4", "SMDDP_HOST_ID": "here"}
        return {**place, ADDRESS: self.server.addresses, KEY: self.server.key}

    def _run(self) -> None:
        while not self._over.is_set():
            for frame in self.server.frames(0.05):
                assert frame.kind == Kind.JOIN
                self.heard.append(json.loads(frame.body))
                if (answers := self._answers.pop(0)) is None:
                    self.server.close()
                    return
                for answer in answers:
                    self.server.send(frame.peer, Kind.PAYLOAD, json.dumps(answer).encode())

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError, ValueError, KeyError):
            self.server.close()


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"_launcher": None, "_members": [], "_synced": None, "_failure": ""}.items():
        monkeypatch.setattr(rounds, name, value)
    yield
    if rounds._launcher is not None:
        rounds._launcher.close()


def test_two_rounds() -> None:
    """News that came before the answer are in it; what comes behind it, in the same packet, is not lost."""
    second = {**ANSWER, "place": [0, 1, 0, 1], "addresses": ["h1:9"], "members": [4]}
    with contextlib.closing(Launcher([[{}, ANSWER, {}], [second]])) as launcher:
        environment = launcher.environment
        assert rounds.in_rounds(environment)
        assert not rounds.in_rounds({ADDRESS: "", KEY: ""})
        (rank, addresses, key, listener), place = rounds.join(environment)
        with socket.socket(fileno=listener) as listening:
            first, *_ = launcher.heard
            assert listening.getsockname()[1] == first.pop("port")
        assert first == {"number": 4, "host": "here", "has_state": False, "failure": ""}
        assert (rank, addresses, place) == (1, ANSWER["addresses"], (1, 3, 0, 2))
        assert key == hmac.new(environment[KEY].encode(), b"\xab" * 32, "sha256").digest()[:16]
        while not rounds.hosts_updated():  # the message is under way
            pass
        assert not rounds.hosts_updated()
        assert not rounds.has_changed()
        rounds.note_state()
        assert not rounds.has_changed()
        rounds.note_failure("rank 2 has died")
        (rank, addresses, _, listener), place = rounds.join(environment)
        os.close(listener)
        assert (rank, addresses, place) == (0, ["h1:9"], (0, 1, 0, 1))
        assert rounds.has_changed()
        rounds.note_state()
        assert not rounds.has_changed()
        assert (launcher.heard[1]["has_state"], launcher.heard[1]["failure"]) == (True, "rank 2 has died")


def test_no_next_round() -> None:
    with contextlib.closing(Launcher([[{"error": "The job ends: 1 ranks are left."}], None])) as launcher:
        with pytest.raises(LaunchError, match="The job ends: 1 ranks are left"):
            rounds.join(launcher.environment)
        with pytest.raises(LaunchError, match="started as rank 4, has lost the launcher"):
            rounds.join(launcher.environment)
        assert not rounds.hosts_updated()

"""A rank's process that does not reach its launcher says what to do about it."""

from __future__ import annotations

import contextlib
import socket

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import ADDRESS, KEY
from smddp_tf.run.rank.launcher import connect_to_launcher
from tests.link.servers import in_thread, local_server


def test_the_reason_the_host_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with local_server() as server:
        monkeypatch.setenv(ADDRESS, server.addresses)
        monkeypatch.setenv(KEY, "guessed")
        [error] = in_thread(server, connect_to_launcher)
        assert isinstance(error, LaunchError)
        reason = f"{server.addresses}: the other side closed the connection, as it does where the keys differ"
        assert f"This rank on {socket.gethostname()} cannot reach smddprun ({reason})" in str(error)
        assert "--network-interfaces" in str(error)
        assert KEY in str(error)
        monkeypatch.setenv(KEY, server.key)
        [client] = in_thread(server, connect_to_launcher)
        with contextlib.closing(client):  # type: ignore[type-var]
            assert len(server.connected) == 1

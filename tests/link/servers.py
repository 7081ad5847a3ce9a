"""A launcher's end of connections in this process, for the tests of both ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from smddp_tf.link.channel import Kind
from smddp_tf.link.client import ControlClient
from smddp_tf.link.server import ControlServer, Frame


def local_server(**arguments: Any) -> contextlib.closing[ControlServer]:
    return contextlib.closing(ControlServer(["127.0.0.1"], **arguments))


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


def asked_for_work(addresses: str, key: str) -> bytes:
    client = ControlClient(addresses, key)
    client.send(Kind.TASK, b"0")
    return client.receive(10)

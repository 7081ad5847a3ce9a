"""A rank's side of the connection to the launcher, or to rank 0 while the ranks meet."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from smddp_tf.link.channel import Channel, Forged, Kind

_CONNECT_SECONDS = 10.0
_HANDSHAKES = 3


class ControlClient:
    """A connection to a `ControlServer`, made at once. Both sides have proved that they know the job's key.

    Args:
        addresses: of the server, `host:port,...`; the first that answers is taken.
        key: the job's.
        seconds: for a server that does not answer at once.

    Raises:
        OSError: the server cannot be reached, or does not prove it. The text is the reason alone: what to do about it
            depends on who listens there, which the caller knows.
    """

    def __init__(self, addresses: str, key: str, seconds: float = _CONNECT_SECONDS) -> None:
        for attempt in range(_HANDSHAKES):  # with many connections at once, the server closes some
            time.sleep(0.1 * attempt)
            self._link = _connect(addresses.split(","), seconds)
            try:
                self._handshake(key)
                return
            except OSError as error:
                self._link.close()
                reason = str(error)
        raise ConnectionError(f"{addresses}: {reason}")

    def fileno(self) -> int:
        return self._link.fileno()

    def send(self, kind: int, body: bytes) -> None:
        """Sends a message; waits while the server does not read. OSError: the server has disconnected."""
        for record in self._channel.pack(kind, body):
            self._link.sendall(record)

    def receive(self, timeout: float | None) -> bytes:
        """Waits for the next message and returns its body.

        Args:
            timeout: in seconds; 0 does not wait, None waits as long as the server keeps the connection.

        Raises:
            OSError: nothing arrived for `timeout` seconds, it is not signed with the job's key, or the server has
                closed the connection.
        """
        self._link.settimeout(timeout)
        try:
            return self._next()
        finally:
            self._link.settimeout(None)

    def heard(self) -> list[tuple[int, bytes]] | None:
        """The messages that have come, when there is something to read; None: the server has disconnected."""
        try:
            chunk = self._link.recv(1 << 16)
            return list(self._channel.feed(chunk)) if chunk else None
        except (OSError, Forged):
            return None

    def close(self) -> None:
        self._link.close()

    def _handshake(self, key: str) -> None:
        self._channel = Channel(key, is_launcher=False)
        self._link.sendall(self._channel.nonce)
        self._next()
        self.send(Kind.PROOF, b"")
        self._next()
        self._link.settimeout(None)

    def _next(self) -> bytes:
        chunk = b""  # the message may have come together with the last one
        try:
            while True:
                for _, body in self._channel.feed(chunk):
                    return body
                if not (chunk := self._link.recv(1 << 18)):
                    raise ConnectionError("the other side closed the connection, as it does where the keys differ")
        except Forged:
            raise ConnectionError("the process that listens there does not know this job's key") from None


def _connect(addresses: Sequence[str], seconds: float) -> socket.socket:
    """Connects to the first of `host:port` that answers."""
    reasons = []
    give_up_at = time.monotonic() + seconds
    while True:
        for address in addresses:
            host, _, port = address.rpartition(":")
            try:
                return socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS)
            except OSError as error:
                reasons.append(f"{address}: {error.strerror or error}")
        if time.monotonic() > give_up_at:
            raise ConnectionError("; ".join(dict.fromkeys(reasons)))
        time.sleep(0.2)

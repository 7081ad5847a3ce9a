"""A rank's side of the connection to the launcher."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import ADDRESS, KEY, Channel, Forged, Kind

_CONNECT_SECONDS = 10.0
_HANDSHAKES = 3


class ControlClient:
    """A connection to the launcher, made at once. Both sides have proved that they know the job's key.

    Args:
        environment: has the launcher's addresses and the job's key.
        seconds: for a launcher that does not answer at once.

    Raises:
        LaunchError: the launcher cannot be reached, or does not prove it.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ, seconds: float = _CONNECT_SECONDS) -> None:
        for attempt in range(_HANDSHAKES):  # with many connections at once, the launcher closes some
            time.sleep(0.1 * attempt)
            self._link = _connect(environment[ADDRESS].split(","), seconds)
            try:
                self._handshake(environment[KEY])
                return
            except OSError as error:
                self._link.close()
                reason = str(error)
        raise LaunchError(f"smddprun at {environment[ADDRESS]} does not answer ({reason}). Is {KEY} this job's?")

    def fileno(self) -> int:
        return self._link.fileno()

    def send(self, kind: int, body: bytes) -> None:
        """Sends a message; waits while the launcher does not read. OSError: the launcher has disconnected."""
        for record in self._channel.pack(kind, body):
            self._link.sendall(record)

    def receive(self, timeout: float) -> bytes:
        """Waits for the next message and returns its body.

        Raises:
            LaunchError: it is not signed by this job's launcher.
            OSError: nothing arrived for `timeout` seconds, or the launcher has closed the connection.
        """
        self._link.settimeout(timeout)
        body = self._next()
        self._link.settimeout(None)
        return body

    def heard(self) -> list[tuple[int, bytes]] | None:
        """The messages that have come, when there is something to read; None: the launcher has disconnected."""
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
                    raise ConnectionError("the launcher closed the connection")
        except Forged:
            raise LaunchError(
                "The process that listens there is not this job's launcher: its signature is wrong."
            ) from None


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
            raise LaunchError(
                f"This rank on {socket.gethostname()} cannot reach smddprun ({'; '.join(dict.fromkeys(reasons))}). The "
                "host that starts the job must accept connections from the others; name the network that joins them: "
                "--network-interfaces."
            )
        time.sleep(0.2)

"""A rank's side of the line to the launcher: channel.py has the other one."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence

from smddp_tf.run.channel import ADDRESS, KEY
from smddp_tf.run.errors import LaunchError
from smddp_tf.run.records import NONCE, PROOF, Forged, Keys, Reader, Writer

__all__ = ["Caller"]

_CONNECT_SECONDS = 10.0
_HANDSHAKES = 3


class Caller:
    """Connected from the start. Owns its socket.

    Raises:
        LaunchError: the launcher cannot be reached, or is not ours.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ):
        for attempt in range(_HANDSHAKES):
            self._link = _connect(environment[ADDRESS].split(","))
            try:
                keys = self._shake_hands(environment)
                break
            except OSError as error:  # hung up on, as a stranger among too many, or in vain
                self._link.close()
                if attempt == _HANDSHAKES - 1:
                    raise LaunchError(f"smddprun at {environment[ADDRESS]} does not answer: {error}") from None
                time.sleep(0.1)
        self._writer, self._reader = Writer(keys.to_launcher), Reader(keys.to_rank)
        self._link.settimeout(None)

    def fileno(self) -> int:
        return self._link.fileno()

    def send(self, kind: int, body: bytes) -> None:
        """Raises OSError when the launcher is gone."""
        for record in self._writer.records(kind, body):
            self._link.sendall(record)

    def receive(self, timeout: float) -> bytes:
        """The body of the next frame.

        Raises:
            LaunchError: the launcher has hung up, or it was not the launcher who spoke.
            OSError: it says nothing.
        """
        self._link.settimeout(timeout)
        while chunk := self._link.recv(1 << 20):
            try:
                for _, body in self._reader.frames(chunk):
                    self._link.settimeout(None)
                    return body
            except Forged:
                raise LaunchError("What came was not signed by this job's launcher.") from None
        raise LaunchError("The launcher hung up.")

    def close(self) -> None:
        self._link.close()

    def _shake_hands(self, environment: Mapping[str, str]) -> Keys:
        nonce = secrets.token_bytes(NONCE)
        keys = Keys(environment[KEY].encode(), self._exactly(NONCE), nonce)
        self._link.sendall(nonce + keys.proof_of_rank)
        if not hmac.compare_digest(self._exactly(PROOF), keys.proof_of_launcher):
            raise LaunchError(f"What listens at {environment[ADDRESS]} is not this job's launcher.")
        return keys

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            chunk = self._link.recv(count - len(parts))
            if not chunk:
                raise ConnectionError("it hung up")
            parts += chunk
        return bytes(parts)


def _connect(addresses: Sequence[str]) -> socket.socket:
    """The first of `host:port` that answers."""
    reasons = []
    give_up_at = time.monotonic() + _CONNECT_SECONDS
    while True:
        for address in addresses:
            host, _, port = address.rpartition(":")
            try:
                return socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS)
            except OSError as error:
                reasons.append(f"{address}: {error.strerror or error}")
        if time.monotonic() > give_up_at:
            raise LaunchError(
                f"This rank on {socket.gethostname()} cannot reach smddprun ({'; '.join(dict.fromkeys(reasons))}). The "
                "host that starts the job must accept connections from the others; name the network that joins them: "
                "--network-interfaces."
            )
        time.sleep(0.2)

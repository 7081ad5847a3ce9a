"""The line between the launcher and its ranks: what they print, how they end, results. Not through mpirun.

mpirun forwards what ranks print in pieces that may begin and end anywhere, each MPI in its own way, and tells little of
how they end. So every rank connects to the launcher itself, as mpirun's daemons do. Both sides prove that they know the
job's key before anything else is said; frames are a byte of kind, eight bytes of length, and the body.
"""

from __future__ import annotations

import hmac
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from smddp_tf.run.errors import LaunchError

__all__ = [
    "ADDRESS",
    "END",
    "HELLO",
    "KEY",
    "PAYLOAD",
    "RESULT",
    "STDERR",
    "STDOUT",
    "TASK",
    "Caller",
    "Frame",
    "Switchboard",
]

ADDRESS, KEY = "SMDDP_RUN_ADDRESS", "SMDDP_RUN_KEY"
# From a rank: it has started, it printed, it has ended. From a function's process: it wants its work; the result.
HELLO, STDOUT, STDERR, END, TASK, RESULT = range(6)
# To a function's process: its work.
PAYLOAD = 6

_HEAD = struct.Struct("!BQ")
_NONCE = 16
_PROOF = 32
_CONNECT_SECONDS = 10.0
_SEND_SECONDS = 120.0


def _proof(key: bytes, side: bytes, nonce: bytes) -> bytes:
    return hmac.digest(key, side + nonce, "sha256")


@dataclass(frozen=True)
class Frame:
    """Something one peer said. `peer` is a number of the connection; END with an empty body: the line went dead."""

    peer: int
    kind: int
    body: bytes


class _Peer:
    def __init__(self, link: socket.socket, number: int):
        self.link, self.number = link, number
        self.nonce = secrets.token_bytes(_NONCE)
        self.trusted = False
        self.received = bytearray()


class Switchboard:
    """The launcher's side: accepts ranks and yields what they say. Owns its sockets; a context manager.

    Args:
        addresses: of this host, under which ranks may find it; the first is tried first. 127.0.0.1 alone: only from
            this host.
    """

    def __init__(self, addresses: Sequence[str]):
        self.key = secrets.token_hex(32)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1" if list(addresses) == ["127.0.0.1"] else "", 0), backlog=512)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        port = self._listener.getsockname()[1]
        self.addresses = ",".join(f"{address}:{port}" for address in addresses)
        self._peers: dict[int, _Peer] = {}
        self._next = 0

    def __enter__(self) -> Switchboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hangs up on everybody; ranks that still run then end."""
        for peer in list(self._peers.values()):
            self._drop(peer)
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._selector.close()

    @property
    def connected(self) -> int:
        return len(self._peers)

    def listen_to(self, pipe: int, name: int) -> None:
        """Also yields what comes from a pipe, as frames of peer -1 with `name` as their kind."""
        self._selector.register(pipe, selectors.EVENT_READ, name)

    def frames(self, timeout: float) -> Iterator[Frame]:
        """What has come within `timeout` seconds; returns as soon as there was something."""
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._accept()
            elif isinstance(key.data, _Peer):
                yield from self._read(key.data)
            else:
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    self._selector.unregister(key.fd)
                yield Frame(-1, key.data, chunk)

    def send(self, peer: int, kind: int, body: bytes) -> None:
        """Says something to a peer; does nothing when it is gone."""
        if found := self._peers.get(peer):
            found.link.settimeout(_SEND_SECONDS)
            try:
                found.link.sendall(_HEAD.pack(kind, len(body)) + body)
                found.link.setblocking(False)
            except OSError:
                self._drop(found)

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        link.setblocking(False)
        peer = _Peer(link, self._next)
        self._next += 1
        self._peers[peer.number] = peer
        self._selector.register(link, selectors.EVENT_READ, peer)
        link.send(peer.nonce)

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.number, None):
            self._selector.unregister(peer.link)
            peer.link.close()

    def _read(self, peer: _Peer) -> Iterator[Frame]:
        try:
            chunk = peer.link.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._drop(peer)
            if peer.trusted:
                yield Frame(peer.number, END, b"")
            return
        peer.received += chunk
        if not peer.trusted and not self._admit(peer):
            return
        while len(peer.received) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(peer.received)
            if len(peer.received) < _HEAD.size + length:
                return
            body = bytes(peer.received[_HEAD.size : _HEAD.size + length])
            del peer.received[: _HEAD.size + length]
            yield Frame(peer.number, kind, body)

    def _admit(self, peer: _Peer) -> bool:
        if len(peer.received) < _NONCE + _PROOF:
            return False
        nonce, proof = bytes(peer.received[:_NONCE]), bytes(peer.received[_NONCE : _NONCE + _PROOF])
        del peer.received[: _NONCE + _PROOF]
        key = self.key.encode()
        if not hmac.compare_digest(proof, _proof(key, b"rank", peer.nonce)):
            self._drop(peer)
            return False
        peer.link.send(_proof(key, b"launcher", nonce))
        peer.trusted = True
        return True


class Caller:
    """A rank's side: connected from the start. Owns its socket.

    Raises:
        LaunchError: the launcher cannot be reached, or is not ours.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ):
        self._link = _connect(environment[ADDRESS].split(","))
        key = environment[KEY].encode()
        nonce = secrets.token_bytes(_NONCE)
        theirs = self._exactly(_NONCE)
        self._link.sendall(nonce + _proof(key, b"rank", theirs))
        if not hmac.compare_digest(self._exactly(_PROOF), _proof(key, b"launcher", nonce)):
            raise LaunchError(f"What listens at {environment[ADDRESS]} is not this job's launcher.")
        self._link.settimeout(None)

    def fileno(self) -> int:
        return self._link.fileno()

    def send(self, kind: int, body: bytes) -> None:
        """Raises OSError when the launcher is gone."""
        self._link.sendall(_HEAD.pack(kind, len(body)) + body)

    def receive(self, timeout: float) -> bytes:
        """The body of the next frame."""
        self._link.settimeout(timeout)
        _, length = _HEAD.unpack(self._exactly(_HEAD.size))
        body = self._exactly(length)
        self._link.settimeout(None)
        return body

    def close(self) -> None:
        self._link.close()

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            chunk = self._link.recv(min(1 << 20, count - len(parts)))
            if not chunk:
                raise LaunchError("The launcher hung up.")
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

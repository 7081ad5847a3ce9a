"""The line between the launcher and its ranks: what they print, how they end, results. Not through mpirun.

mpirun forwards what ranks print in pieces that may begin and end anywhere, each MPI in its own way, and tells little of
how they end. So every rank connects to the launcher itself, as mpirun's daemons do. Both sides prove that they know the
job's key before anything else is said, and sign all that follows: records.py. The ranks' side is caller.py.
"""

from __future__ import annotations

import hmac
import os
import secrets
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from smddp_tf.run.records import NONCE, PROOF, Forged, Keys, Reader, Writer

__all__ = [
    "ADDRESS",
    "END",
    "HELLO",
    "KEY",
    "PAYLOAD",
    "RAISED",
    "RESULT",
    "STDERR",
    "STDOUT",
    "TASK",
    "Frame",
    "Switchboard",
]

ADDRESS, KEY = "SMDDP_RUN_ADDRESS", "SMDDP_RUN_KEY"
# From a rank: it has started, it printed, it has ended. From a function's process: it wants its work; the result.
HELLO, STDOUT, STDERR, END, TASK, RESULT = range(6)
# To a function's process: its work.
PAYLOAD = 6
# From a rank: an exception of its own ends it; the traceback comes.
RAISED = 7

_SEND_SECONDS = 120.0
_STRANGER_SECONDS = 10.0
_MORE_STRANGERS = 64  # than there are ranks
_ACCEPT_AT_ONCE = 64


@dataclass(frozen=True)
class Frame:
    """Something one peer said. `peer` is a number of the connection; END with an empty body: the line went dead."""

    peer: int
    kind: int
    body: bytes


class _Peer:
    def __init__(self, link: socket.socket, number: int):
        self.link, self.number = link, number
        self.nonce = secrets.token_bytes(NONCE)
        self.received = bytearray()  # of the proof
        self.since = time.monotonic()
        self.reader: Reader | None = None  # both: once it is trusted
        self.writer: Writer | None = None


class Switchboard:
    """The launcher's side: accepts ranks and yields what they say. Owns its sockets; a context manager.

    Who has not proved within seconds that it knows the job's key is hung up on; of more than a number of such
    strangers at once, the oldest. None of them is given memory for more than its proof.

    Args:
        addresses: of this host, under which ranks may find it; the first is tried first. 127.0.0.1 alone: only from
            this host.
        ranks: how many are expected.
    """

    def __init__(self, addresses: Sequence[str], ranks: int = 1):
        self.key = secrets.token_hex(32)
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1" if list(addresses) == ["127.0.0.1"] else "", 0), backlog=512)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        port = self._listener.getsockname()[1]
        self.addresses = ",".join(f"{address}:{port}" for address in addresses)
        self._peers: dict[int, _Peer] = {}
        self._strangers: dict[int, _Peer] = {}  # the oldest first
        self._most_strangers = ranks + _MORE_STRANGERS
        self._next = 0

    def __enter__(self) -> Switchboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hangs up on everybody; ranks that still run then end."""
        for peer in [*self._peers.values(), *self._strangers.values()]:
            self._drop(peer)
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._selector.close()

    def hang_up(self) -> None:
        """Ranks that still run then end; what they have said before is still heard."""
        for peer in self._peers.values():
            try:
                peer.link.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    @property
    def connected(self) -> int:
        """How many have proved that they belong to the job."""
        return len(self._peers)

    def listen_to(self, pipe: int, name: int) -> None:
        """Also yields what comes from a pipe, as frames of peer -1 with `name` as their kind."""
        self._selector.register(pipe, selectors.EVENT_READ, name)

    def frames(self, timeout: float) -> Iterator[Frame]:
        """What has come within `timeout` seconds; returns as soon as there was something."""
        self._hang_up_on_strangers()
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
        found = self._peers.get(peer)
        if found is None or found.writer is None:
            return
        found.link.settimeout(_SEND_SECONDS)
        try:
            for record in found.writer.records(kind, body):
                found.link.sendall(record)
            found.link.setblocking(False)
        except OSError:
            self._drop(found)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            link.setblocking(False)
            peer = _Peer(link, self._next)
            self._next += 1
            self._strangers[peer.number] = peer
            self._selector.register(link, selectors.EVENT_READ, peer)
            self._say(peer, peer.nonce)
            self._hang_up_on_strangers()

    def _hang_up_on_strangers(self) -> None:
        late = time.monotonic() - _STRANGER_SECONDS
        for peer in list(self._strangers.values()):
            if peer.since > late and len(self._strangers) <= self._most_strangers:
                return
            self._drop(peer)

    def _say(self, peer: _Peer, words: bytes) -> None:
        """A few bytes, for which a new connection has room."""
        try:
            peer.link.sendall(words)
        except OSError:
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.number, None) or self._strangers.pop(peer.number, None):
            self._selector.unregister(peer.link)
            peer.link.close()

    def _read(self, peer: _Peer) -> Iterator[Frame]:
        if peer.link.fileno() < 0:  # hung up on since it was found to be readable
            return
        missing = NONCE + PROOF - len(peer.received)
        try:
            chunk = peer.link.recv(1 << 18 if peer.reader else missing)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if peer.reader is None:
            self._admit(peer, chunk)
            return
        try:
            for kind, body in peer.reader.frames(chunk):
                yield Frame(peer.number, kind, body)
        except Forged:
            chunk = b""
        if not chunk:
            self._drop(peer)
            yield Frame(peer.number, END, b"")

    def _admit(self, peer: _Peer, chunk: bytes) -> None:
        peer.received += chunk
        if chunk and len(peer.received) < NONCE + PROOF:
            return
        nonce, proof = bytes(peer.received[:NONCE]), bytes(peer.received[NONCE:])
        keys = Keys(self.key.encode(), peer.nonce, nonce)
        if not chunk or not hmac.compare_digest(proof, keys.proof_of_rank):
            self._drop(peer)
            return
        peer.reader, peer.writer = Reader(keys.to_launcher), Writer(keys.to_rank)
        self._peers[peer.number] = self._strangers.pop(peer.number)
        self._say(peer, keys.proof_of_launcher)

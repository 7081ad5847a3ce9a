"""The launcher's side of the connections to its ranks."""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import Channel, Forged, Kind

_SEND_SECONDS = 120.0
_PROOF_SECONDS = 10.0
_PENDING_BYTES = 64  # at once: a nonce and a proof are shorter
_MORE_PENDING = 64  # than there are ranks


class Frame(NamedTuple):
    """A message. `peer` is the number of the connection it came on, -1 for a pipe."""

    peer: int
    kind: int
    body: bytes


class _Peer(NamedTuple):
    number: int
    link: socket.socket
    channel: Channel
    since: float


def listen(address: str, port: int = 0) -> socket.socket:
    """A listening socket; at "" of all addresses, also those of IPv6.

    Raises:
        LaunchError: this host has no such address, or the port is in use.
    """
    try:
        if not address and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=512, dualstack_ipv6=True)
        return socket.create_server((address, port), backlog=512)
    except OSError as error:
        raise LaunchError(
            f"Nothing can listen on {address or 'any address'}, port {port or 'any'}, of this host ({error.strerror}). "
            "Jobs on one host need the address 127.0.0.1: ip addr add 127.0.0.1/8 dev lo."
        ) from None


class ControlServer:
    """Accepts the connections of the ranks and yields their messages. For one thread. It ends with `close`.

    A connection is pending until the other side has proved that it knows the job's key. Pending connections are closed
    after 10 s, and the oldest ones when there are more than 64 besides one for each rank. Only `send`
    waits for a connection, at most 120 s for each 64 KiB.

    Args:
        addresses: of this host, in the order in which ranks shall try them. Only 127.0.0.1: all ranks are on this host.
        ranks: how many are expected.
        port: where to listen; 0: any that is free.
        key: the job's; None: a new one.

    Raises:
        LaunchError: this host has no such address, or the port is in use.

    Attributes:
        key: the job's key, which the ranks must be given.
        addresses: for the ranks, as "host:port,host:port".
    """

    def __init__(self, addresses: Sequence[str], ranks: int = 1, port: int = 0, key: str | None = None) -> None:
        self.key = secrets.token_hex(32) if key is None else key
        self._selector = selectors.DefaultSelector()
        self._listener = listen("127.0.0.1" if list(addresses) == ["127.0.0.1"] else "", port)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        port = self._listener.getsockname()[1]
        self.addresses = ",".join(f"{address}:{port}" for address in addresses)
        self._peers: dict[int, _Peer] = {}
        self._pending: dict[int, _Peer] = {}  # the oldest first
        self._most_pending = ranks + _MORE_PENDING
        self._next = 0

    def close(self) -> None:
        """Closes all connections. Ranks that still run then end."""
        for peer in [*self._peers.values(), *self._pending.values()]:
            self._drop(peer)
        self._listener.close()
        self._selector.close()

    def end_ranks(self) -> None:
        """Makes ranks that still run end. Messages that they send until then can still be received."""
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.link.shutdown(socket.SHUT_WR)

    @property
    def connected(self) -> Collection[int]:
        """The numbers of the connections to ranks that are open."""
        return self._peers.keys()

    def silence_of(self, peer: int) -> float:
        """Seconds since the host of an open connection has acknowledged anything; its kernel does, whoever reads."""
        info = self._peers[peer].link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 60)
        return float(struct.unpack_from("I", info, 56)[0]) / 1000  # tcpi_last_ack_recv

    def addresses_of(self, peer: int) -> tuple[str, str]:
        """The IP addresses of a connection's other side, and of this one."""
        link = self._peers[peer].link
        other, this = (str(name[0]).removeprefix("::ffff:") for name in (link.getpeername(), link.getsockname()))
        return other, this

    def listen_to(self, pipe: int, kind: int) -> None:
        """Makes `frames` also yield the data of a pipe, as frames of peer -1. An empty frame marks its end."""
        self._selector.register(pipe, selectors.EVENT_READ, kind)

    def frames(self, timeout: float) -> Iterator[Frame]:
        """Yields what has arrived; waits at most `timeout` seconds for the first."""
        self._close_pending()
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
        """Sends a message. Nothing happens when the peer has disconnected. One that does not read is closed."""
        if peer in self._peers:
            self._write(self._peers[peer], self._peers[peer].channel.pack(kind, body))

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        peer = _Peer(self._next, link, Channel(self.key, is_launcher=True), time.monotonic())
        self._next += 1
        self._pending[peer.number] = peer
        self._selector.register(link, selectors.EVENT_READ, peer)
        self._write(peer, [peer.channel.nonce])
        self._close_pending()

    def _close_pending(self) -> None:
        late = time.monotonic() - _PROOF_SECONDS
        for peer in list(self._pending.values()):
            if peer.since > late and len(self._pending) <= self._most_pending:
                return
            self._drop(peer)

    def _write(self, peer: _Peer, parts: Iterable[bytes]) -> None:
        peer.link.settimeout(_SEND_SECONDS)  # a nonce and a proof have room in the connection and never wait
        try:
            for part in parts:
                peer.link.sendall(part)
            peer.link.setblocking(False)
        except OSError:
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        if self._peers.pop(peer.number, None) or self._pending.pop(peer.number, None):
            self._selector.unregister(peer.link)
            peer.link.close()

    def _read(self, peer: _Peer) -> Iterator[Frame]:
        if peer.link.fileno() < 0:  # closed since it was found to be readable
            return
        try:
            chunk = peer.link.recv(_PENDING_BYTES if peer.number in self._pending else 1 << 18)
            for kind, body in peer.channel.feed(chunk):
                if peer.number in self._peers:
                    yield Frame(peer.number, kind, body)
                elif kind == Kind.PROOF and peer.number in self._pending:
                    self._peers[peer.number] = self._pending.pop(peer.number)
                    self._write(peer, peer.channel.pack(Kind.PROOF, b""))
        except BlockingIOError:
            return
        except (OSError, Forged):
            chunk = b""
        if not chunk:
            self._drop(peer)

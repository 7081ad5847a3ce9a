"""Signed messages between the launcher and its ranks, over separate TCP connections.

mpirun is not suitable for this: it forwards output in arbitrary pieces and reports little of how a rank ended.
The launcher's side is server.py, the ranks' side client.py.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Iterator
from enum import IntEnum

ADDRESS, KEY = "SMDDP_RUN_ADDRESS", "SMDDP_RUN_KEY"

_NONCE, _SIGNATURE = 16, 32
_HEAD = struct.Struct("!B?H")  # kind; whether the message continues in the next record; bytes of the body
_PART = (1 << 16) - 1  # most bytes of a body in one record


class Kind(IntEnum):
    """The kinds of messages."""

    NONCE = 0  # not sent as a message: the other side's nonce has come
    PROOF = 1
    HELLO = 2  # from a supervisor: its rank has started
    STDOUT = 3
    STDERR = 4
    RAISED = 5  # an exception of the rank's own ends it, and the traceback comes
    END = 6
    TASK = 7  # from a function's process: it asks for its work
    RESULT = 8
    PAYLOAD = 9  # to a function's process: its work
    SIGNAL = 11  # to a supervisor: the number of a signal for its command
    STDIN = 13  # from rank 0's supervisor: it wants standard input; to it: some of that, b"" at the end
    JOIN = 14  # from a rank whose job forms rounds: it waits for the next one
    INIT = 12  # from a supervisor: its rank is in `hvd.init` (b"+"), or has left it (b"-")


class Forged(Exception):
    """A record was not signed by the other side of this connection."""


class Channel:
    """One side of a connection: makes records of messages, and messages of the received bytes. Does no input or output.

    Both sides first send their `nonce`. When `feed` has yielded NONCE, messages can be packed. The first one must be an
    empty PROOF. The launcher sends its own when it has that of the rank.

    A message is cut into records of at most 64 KiB. Each carries a signature (HMAC-SHA256 with the job's key) of the
    direction, both nonces, and all records of this direction so far. So no process without the key, between both sides
    or elsewhere, can add, change, repeat, reorder or send back a record. Before the proof has come, no bytes are held
    but those of a proof; later at most those of one record, and the verified ones of a message that is not complete.
    Nothing is encrypted.

    Args:
        key: the job's.
        is_launcher: on which side this is.
    """

    def __init__(self, key: str, is_launcher: bool) -> None:
        self.nonce = os.urandom(_NONCE)
        self._key, self._is_launcher = key.encode(), is_launcher
        self._sent: hmac.HMAC | None = None  # of all records so far, and of those that came: set by the other's nonce
        self._came: hmac.HMAC | None = None
        self._received, self._body = bytearray(), bytearray()
        self._most = 0  # bytes of a record's body

    def pack(self, kind: int, body: bytes) -> Iterator[bytes]:
        """The message's records. All must be sent, in this order."""
        assert self._sent
        view = memoryview(body)
        for begin in range(0, max(len(body), 1), _PART):
            part = view[begin : begin + _PART]
            record = _HEAD.pack(kind, begin + len(part) < len(body), len(part)) + part
            self._sent.update(record)
            yield record + self._sent.digest()

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """The messages that are complete with these bytes: their kinds and bodies.

        Raises:
            Forged: the connection cannot be trusted any more.
        """
        self._received += chunk
        if self._came is None:
            if len(self._received) < _NONCE:
                return
            self._begin(self._take(_NONCE))
            yield Kind.NONCE, b""
        while record := self._next_record():
            self._body += record[_HEAD.size :]
            kind, goes_on, _ = _HEAD.unpack_from(record)
            if not goes_on:
                body, self._body = bytes(self._body), bytearray()
                yield kind, body

    def _begin(self, theirs: bytes) -> None:
        nonces = self.nonce + theirs if self._is_launcher else theirs + self.nonce
        to_rank, to_launcher = (
            hmac.new(self._key, b"smddprun to the " + receiver + b"\0" + nonces, "sha256")
            for receiver in (b"rank", b"launcher")
        )
        self._sent, self._came = (to_rank, to_launcher) if self._is_launcher else (to_launcher, to_rank)

    def _next_record(self) -> bytes:
        """The next record, verified; empty while it is not complete."""
        assert self._came
        if len(self._received) < _HEAD.size:
            return b""
        _, _, length = _HEAD.unpack_from(self._received)
        if length > self._most:
            raise Forged
        end = _HEAD.size + length
        if len(self._received) < end + _SIGNATURE:
            return b""
        record, signature = self._take(end), self._take(_SIGNATURE)
        self._came.update(record)
        if not hmac.compare_digest(signature, self._came.digest()):
            raise Forged
        self._most = _PART
        return record

    def _take(self, count: int) -> bytes:
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

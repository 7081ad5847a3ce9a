"""What travels between the launcher and a rank: records with a signature, and the proofs with which both begin.

Frames (a kind and a body) are cut into records of at most 64 KiB; each is signed with a key that both sides derive from
the job's key and from the numbers of this connection, another one for each direction, and with its place in the stream.
So nobody without the job's key can add, change, repeat, reorder or send back anything, and nothing is kept or looked at
before it was verified. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator

__all__ = ["NONCE", "PROOF", "Forged", "Keys", "Reader", "Writer"]

NONCE, PROOF = 16, 32
_HEAD = struct.Struct("!B?H")  # kind, whether the frame goes on, bytes
_PLACE = struct.Struct("!Q")
_MOST = (1 << 16) - 1  # bytes of a record
_SIGNATURE = 32


class Forged(Exception):
    """A record that is not what the other side has sent."""


class Keys:
    """The keys of one connection.

    Args:
        secret: the job's key.
        launcher_nonce, rank_nonce: what each side has drawn for this connection.
    """

    def __init__(self, secret: bytes, launcher_nonce: bytes, rank_nonce: bytes):
        self._secret, self._nonces = secret, launcher_nonce + rank_nonce

    def _derive(self, purpose: bytes) -> bytes:
        return hmac.digest(self._secret, b"smddprun " + purpose + b"\0" + self._nonces, "sha256")

    @property
    def proof_of_rank(self) -> bytes:
        return self._derive(b"proof of the rank")

    @property
    def proof_of_launcher(self) -> bytes:
        return self._derive(b"proof of the launcher")

    @property
    def to_launcher(self) -> bytes:
        return self._derive(b"to the launcher")

    @property
    def to_rank(self) -> bytes:
        return self._derive(b"to the rank")


class Writer:
    """Signs what goes in one direction."""

    def __init__(self, key: bytes):
        self._key, self._place = key, 0

    def records(self, kind: int, body: bytes) -> Iterator[bytes]:
        """The frame as records, in their order. All must be sent."""
        view = memoryview(body)
        for begin in range(0, max(len(body), 1), _MOST):
            part = view[begin : begin + _MOST]
            head = _HEAD.pack(kind, begin + len(part) < len(body), len(part))
            signature = _signature(self._key, self._place, head, part)
            self._place += 1
            yield b"".join((head, part, signature))


class Reader:
    """Verifies what comes from one direction. Holds the frame that is not complete, and at most one record besides."""

    def __init__(self, key: bytes):
        self._key, self._place = key, 0
        self._received = bytearray()
        self._body = bytearray()

    def frames(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames that are complete with this chunk.

        Raises:
            Forged: a signature is wrong; nothing that follows can be trusted.
        """
        self._received += chunk
        while len(self._received) >= _HEAD.size:
            kind, goes_on, length = _HEAD.unpack_from(self._received)
            end = _HEAD.size + length
            if len(self._received) < end + _SIGNATURE:
                return
            record = bytes(self._received[: end + _SIGNATURE])
            del self._received[: end + _SIGNATURE]
            signature = _signature(self._key, self._place, record[: _HEAD.size], record[_HEAD.size : end])
            if not hmac.compare_digest(record[end:], signature):
                raise Forged
            self._place += 1
            self._body += record[_HEAD.size : end]
            if not goes_on:
                body, self._body = bytes(self._body), bytearray()
                yield kind, body


def _signature(key: bytes, place: int, head: bytes, part: bytes | memoryview) -> bytes:
    signer = hmac.new(key, _PLACE.pack(place) + head, "sha256")
    signer.update(part)
    return signer.digest()

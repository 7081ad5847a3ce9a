"""Cuts what a program prints into lines, and into the states of a line that draws over itself, as progress bars do."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

_ENDS = re.compile(r"(\r\n|\n|\r)")
_MOST = 1 << 14  # characters that are kept of a line that does not end


class Piece(NamedTuple):
    r"""Text, and its end: "\n"; "\r", after which the next piece replaces it; or "", when more may follow."""

    text: str
    end: str


class Pieces:
    """The pieces of one stream. Work is linear in the bytes; what is kept is bounded, however long nothing ends.

    Bytes that are not UTF-8 become replacement characters; characters may be cut anywhere between two chunks.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self._length = 0

    def __len__(self) -> int:
        """The number of characters of the incomplete line."""
        return self._length

    def feed(self, chunk: bytes, final: bool = False) -> list[Piece]:
        """What is complete with this chunk. `final`: no more will come."""
        *ended, rest = _ENDS.split(self._decoder.decode(chunk, final))
        found = []
        for text, end in zip(ended[::2], ended[1::2]):
            found.append(Piece(self._taken() + text, "\r" if end == "\r" else "\n"))
        self._keep(rest)
        if self._length > _MOST:
            found.append(self.unfinished())
        return found

    def unfinished(self) -> Piece:
        """Returns and removes the incomplete line."""
        return Piece(self._taken(), "")

    def _keep(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._length += len(text)

    def _taken(self) -> str:
        text, self._parts, self._length = "".join(self._parts), [], 0
        return text

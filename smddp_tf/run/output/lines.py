"""Splits the output of a program into lines, and keeps the last ones for the end of the job.

A line that is redrawn, such as a progress bar, is split at each carriage return, and only its last state is kept.
"""

from __future__ import annotations

import codecs
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

_ENDS = re.compile(r"(\r\n|\n|\r)")
_MOST = 1 << 14  # characters that are kept of a line that does not end
_KEPT_CHARACTERS = 1 << 16
_SHOWN_LINES = 20
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class Segment(NamedTuple):
    r"""Text, and its end: "\n"; "\r", after which the next segment replaces it; or "", when more may follow."""

    text: str
    end: str


class LineSplitter:
    """Splits one stream into segments. Time is linear in the bytes, and memory is bounded, however long a line is.

    Bytes that are not UTF-8 become replacement characters; characters may be split between two chunks.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self._length = 0
        self.fed = 0.0  # when the last chunk came, by `time.monotonic`

    def __len__(self) -> int:
        """The number of characters of the incomplete line."""
        return self._length

    def feed(self, chunk: bytes, final: bool = False) -> list[Segment]:
        """Returns the lines that a chunk completes.

        Args:
            chunk: the next bytes of the stream.
            final: whether it is the last chunk.
        """
        self.fed = time.monotonic()
        *ended, rest = _ENDS.split(self._decoder.decode(chunk, final))
        pairs = zip(ended[::2], ended[1::2])
        segments = [Segment(self._take() + text, "\r" if end == "\r" else "\n") for text, end in pairs]
        self._parts.append(rest)
        self._length += len(rest)
        if self._length > _MOST:
            segments.append(self.unfinished())
        return segments

    def unfinished(self) -> Segment:
        """Returns and removes the incomplete line."""
        return Segment(self._take(), "")

    def _take(self) -> str:
        text, self._parts, self._length = "".join(self._parts), [], 0
        return text


class OutputTail:
    """The last lines that a rank has printed, of bounded length; of a line that is redrawn only its last state."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, Segment]] = deque()
        self._characters = 0

    def add(self, stream: int, segment: Segment) -> None:
        """Appends a segment; `stream` is 0 for stdout, 1 for stderr."""
        if self._kept and self._kept[-1][0] == stream and self._kept[-1][1].end == "\r":
            self._characters -= len(self._kept.pop()[1].text)
        self._kept.append((stream, segment))
        self._characters += len(segment.text)
        while self._characters > _KEPT_CHARACTERS and len(self._kept) > 1:
            self._characters -= len(self._kept.popleft()[1].text)

    def lines(self) -> list[str]:
        """Returns the last traceback, else the last lines; [] when nothing was printed."""
        of_stderr = [segment.text for stream, segment in self._kept if stream]
        shown = [segment.text for _, segment in self._kept if segment.text.strip()]
        return last_traceback(of_stderr) or shown[-_SHOWN_LINES:]


def starts_traceback(line: str) -> bool:
    """Returns whether it is the first line of a Python traceback."""
    return line.startswith(_TRACEBACK)


def last_traceback(lines: Sequence[str]) -> list[str]:
    """Returns the last Python traceback in the lines of stderr, with the tracebacks it is chained to, or []."""
    starts = [number for number, line in enumerate(lines) if starts_traceback(line)]
    if not starts:
        return []
    first = len(starts) - 1
    while first > 0 and any(line in _CHAINED for line in lines[starts[first - 1] : starts[first]]):
        first -= 1
    end = starts[-1] + 1
    while end < len(lines) and (lines[end].startswith((" ", "\t")) or not lines[end]):
        end += 1
    # The line of the exception, and at most _SHOWN_LINES - 1 lines of its text.
    return list(lines[starts[first] : max(end + 1, min(len(lines), end + _SHOWN_LINES))])

"""Prints the ranks' lines here: the rank before each, coloured on a terminal."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import time
from typing import TextIO

from smddp_tf.run.output.lines import Segment

STREAMS = ("stdout", "stderr")
MPIRUN = -1  # in place of a rank: its lines are shown unchanged
_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93)
_RED, _BOLD, _PLAIN = 31, "\x1b[1;{}m", "\x1b[0m"
_CLEAR = "\x1b[K"
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")  # of the cursor: other ranks' lines are there


class Console:
    r"""Shows segments so that every line is one rank's, and the last state of a line that draws over itself stays.

    States of such a line end with "\r", as the program has written them: a terminal draws the next one, whoever's it
    is, in their place; in a file or a pipe other ranks' lines begin on a line of their own. Call `flush` after `show`.

    Args:
        timestamps: lines carry the time.
    """

    def __init__(self, timestamps: bool = False) -> None:
        self._timestamps = timestamps
        self._at: tuple[int, int] | None = None  # whose segment was the last, if it has not ended its line
        self._end = ""  # of that segment
        self._drawn: set[tuple[int, int]] = set()  # whose last segment ended with \r
        self._cut_off: set[tuple[int, int]] = set()  # whose unfinished line was ended here, for another's
        self._pending: list[tuple[int, str]] = []

    def show(self, rank: int, stream: int, segment: Segment) -> None:
        """`stream` is 0 for stdout, 1 for stderr."""
        owner, text, end = (rank, stream), segment.text.strip("\b"), segment.end
        terminal = _is_terminal(stream)
        if self._at == owner and not self._end:
            self._pending.append((stream, (_shown(text) if terminal else text) + end))
        elif not text and end == "\n" and owner in self._cut_off:
            self._cut_off.discard(owner)
            return
        elif not text and (end == "\r" or (end == "\n" and owner in self._drawn)):
            # The carriage return with which progress bars begin, or a newline that ends what was drawn.
            if end == "\r" or self._at != owner:
                self._drawn.discard(owner)
                return
            self._pending.append((stream, end))
        else:
            self._leave_line(owner)
            shown = self._prefix(rank, stream, terminal) + (_shown(text) if terminal else text) + end
            self._pending.append((stream, shown))
        self._at, self._end = (None, "") if end == "\n" else (owner, end)
        self._cut_off.discard(owner)
        (self._drawn.add if end == "\r" else self._drawn.discard)(owner)

    def finish_line(self) -> None:
        """The next output begins on a new line."""
        self._leave_line(None)
        self.flush()

    def flush(self) -> None:
        """Flushes the output."""
        for stream, parts in itertools.groupby(self._pending, key=lambda pending: pending[0]):
            write(stream, "".join(text for _, text in parts))
        self._pending.clear()

    def _leave_line(self, owner: tuple[int, int] | None) -> None:
        if self._at is None:
            return
        stream = self._at[1]
        if self._end == "\r" and owner is not None and _is_terminal(stream) and _is_terminal(owner[1]):
            self._pending.append((stream, _CLEAR))
        elif self._end != "\r" or owner != self._at:
            self._pending.append((stream, "\n"))
            if not self._end:
                self._cut_off.add(self._at)
        self._at = None

    def _prefix(self, rank: int, stream: int, terminal: bool) -> str:
        if rank == MPIRUN:
            return ""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S ") if self._timestamps else ""
        if not terminal:
            return f"{stamp}[{rank}]<{STREAMS[stream]}>: "
        if "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
            return f"{stamp}[{rank}] "
        colour = _RED if stream else _COLOURS[rank % len(_COLOURS)]
        return f"{_BOLD.format(colour)}{stamp}[{rank}]{_PLAIN} "


def _shown(text: str) -> str:
    """For a terminal: colours that end with the line, and no moves."""
    return _MOVES.sub("", text) + _PLAIN if "\x1b" in text else text


def say(text: str) -> None:
    """Prints a line of the launcher itself, on standard error: what ranks print may be for another program."""
    write(1, f"smddprun: {text}\n")


def write(stream: int, text: str) -> None:
    """Prints on this console. Where that is no longer possible (full disk, broken pipe) the job continues without."""
    file = sys.stderr if stream else sys.stdout
    if file is None:  # it was closed before the start
        return
    encoding = file.encoding or "utf-8"
    try:
        file.write(text.encode(encoding, "replace").decode(encoding))  # characters that it lacks become question marks
        file.flush()
    except (OSError, ValueError) as error:
        _give_up(stream, file)
        if not stream:
            reason = getattr(error, "strerror", None) or error
            say(f"standard output: {reason}. It ends here, and the job continues.")


def _give_up(stream: int, file: TextIO) -> None:
    """Discards the output that Python has buffered, and all that follows."""
    try:
        number = file.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    except (OSError, ValueError):
        setattr(sys, STREAMS[stream], None)


def _is_terminal(stream: int) -> bool:
    with contextlib.suppress(AttributeError, ValueError):  # it was closed
        return (sys.stderr if stream else sys.stdout).isatty()
    return False

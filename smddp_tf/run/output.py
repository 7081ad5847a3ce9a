"""What ranks print: lines with the rank before them, coloured on a terminal, and copies in files."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import IO, Any

__all__ = ["Output", "last_words"]

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_yellow")
_STREAMS = ("stdout", "stderr")
_KEPT_LINES = 500
_SHOWN_LINES = 20
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class Output:
    """Prints the ranks' lines. Owns its files; a context manager.

    Args:
        ranks: how many.
        folder: for rank.N/stdout and stderr; "" for none. The number has as many digits as the largest.
        timestamps: lines carry the time.
    """

    def __init__(self, ranks: int, folder: str = "", timestamps: bool = False):
        self._timestamps = timestamps
        self._partial: dict[tuple[int, int], bytes] = {}
        self._kept: dict[int, deque[tuple[int, str]]] = {rank: deque(maxlen=_KEPT_LINES) for rank in range(ranks)}
        self._files: dict[tuple[int, int], IO[bytes]] = {}
        self._consoles: dict[int, Any] = {}
        digits = len(str(ranks - 1))
        for rank in range(ranks) if folder else ():
            of_rank = Path(folder) / f"rank.{rank:0{digits}}"
            of_rank.mkdir(parents=True, exist_ok=True)
            for stream, name in enumerate(_STREAMS):
                self._files[rank, stream] = _plain_file(of_rank / name)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        for rank, stream in list(self._partial):
            self.end_of(rank, stream)
        for file in self._files.values():
            file.close()

    def write(self, rank: int, stream: int, chunk: bytes) -> None:
        """Prints the complete lines of what a rank has printed so far; `stream` is 0 for stdout, 1 for stderr."""
        self._copy(rank, stream, chunk)
        *lines, rest = (self._partial.pop((rank, stream), b"") + chunk).split(b"\n")
        if rest:
            self._partial[rank, stream] = rest
        for line in lines:
            self._print(rank, stream, line)

    def end_of(self, rank: int, stream: int) -> None:
        """Prints what the rank left without an end of line."""
        if rest := self._partial.pop((rank, stream), b""):
            self._print(rank, stream, rest)

    def pass_on(self, stream: int, chunk: bytes) -> None:
        """Prints mpirun's own words as they are."""
        file = sys.stderr if stream else sys.stdout
        file.write(chunk.decode(errors="replace"))
        file.flush()

    def last_words_of(self, rank: int) -> list[str]:
        """The rank's last traceback, else the end of what it printed."""
        kept = self._kept.get(rank, ())
        return last_words([text for stream, text in kept if stream]) or [text for _, text in kept][-_SHOWN_LINES:]

    def _copy(self, rank: int, stream: int, chunk: bytes) -> None:
        """A full disk ends the copy, not the job."""
        if file := self._files.get((rank, stream)):
            try:
                while chunk:
                    chunk = chunk[file.write(chunk) :]
            except OSError as error:
                del self._files[rank, stream]
                file.close()
                print(f"smddprun: {file.name}: {error.strerror}. This file ends here.", file=sys.stderr)

    def _print(self, rank: int, stream: int, line: bytes) -> None:
        # Of a line that draws over itself, as progress bars do, the last state.
        text = line.decode(errors="replace").rstrip("\r").rsplit("\r", 1)[-1]
        self._kept.setdefault(rank, deque(maxlen=_KEPT_LINES)).append((stream, text))
        stamp = time.strftime("%Y-%m-%d %H:%M:%S ") if self._timestamps else ""
        file = sys.stderr if stream else sys.stdout
        if file.isatty():
            self._print_colours(rank, stream, stamp, text)
        else:
            file.write(f"{stamp}[{rank}]<{_STREAMS[stream]}>: {text}\n")
            file.flush()

    def _print_colours(self, rank: int, stream: int, stamp: str, text: str) -> None:
        from rich.console import Console
        from rich.text import Text

        if stream not in self._consoles:
            self._consoles[stream] = Console(stderr=bool(stream), highlight=False, markup=False, soft_wrap=True)
        colour = _COLOURS[rank % len(_COLOURS)]
        prefix = Text(f"{stamp}[{rank}]", style=f"bold {'red' if stream else colour}")
        self._consoles[stream].print(prefix, Text.from_ansi(text), soft_wrap=True)


def _plain_file(path: Path) -> IO[bytes]:
    """Opens `path` for writing, empty. Follows no link: the folder may be one that others can write to."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(path, "wb", buffering=0, opener=lambda name, _: os.open(name, flags, 0o666))


def last_words(lines: list[str]) -> list[str]:
    """The last Python traceback among the lines of stderr, with those it is chained to; [] when there is none."""
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not starts:
        return []
    first = len(starts) - 1
    while first > 0 and any(line in _CHAINED for line in lines[starts[first - 1] : starts[first]]):
        first -= 1
    end = starts[-1] + 1
    while end < len(lines) and (lines[end].startswith((" ", "\t")) or not lines[end]):
        end += 1
    # The exception's own line, and the lines its text goes on with, up to something that is not part of it.
    return lines[starts[first] : max(end + 1, min(len(lines), end + _SHOWN_LINES))]

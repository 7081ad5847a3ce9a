"""The output of the ranks: shown line by line, with copies in files; and the last output of a rank that fails."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import IO

from smddp_tf.exceptions import LaunchError
from smddp_tf.monitor.lines import opened
from smddp_tf.run.output.console import STREAMS, Console, say
from smddp_tf.run.output.lines import LineSplitter, OutputTail, Segment, starts_traceback

_IDLE_SECONDS = 0.5  # then an incomplete line is shown
_HOLD_SECONDS = 3.0  # for a rank to end of the exception whose traceback it has printed
_RAISES_SECONDS = 30.0  # the same, once it has said that it ends of it
_HELD_CHARACTERS = 1 << 18
# What TensorFlow 2.21 prints when it is imported, whatever TF_CPP_MIN_LOG_LEVEL says: absl is not initialized yet.
_GREETING = re.compile(r"I0000 00:00:[\d.]+ +\d+ \S+:\d+\] |WARNING: All log messages before absl::InitializeLog\(\) ")
_OF_NO_USE = "plm:ssh: Warning: setpgid"  # in a line of mpirun's: its ssh had begun before it was given a process group


class _Held:
    """A traceback and what follows it on stderr. It is shown last if it caused the end of the job, else in order."""

    def __init__(self, seconds: float) -> None:
        self.segments: list[Segment] = []
        self.characters = 0
        self.until = time.monotonic() + seconds

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.characters += len(segment.text) + 1


class Output:
    """Prints what the ranks print. Owns its files; a context manager. What it keeps of a rank is bounded.

    Args:
        ranks: how many.
        folder: for rank.N/stdout and stderr; "" for none. The number has as many digits as the largest.
        timestamps: lines carry the time.
        greetings: shows the notes that TensorFlow prints when it is imported. Files have them in any case.

    Raises:
        LaunchError: a file in the folder cannot be made.
    """

    def __init__(self, ranks: int, folder: str = "", timestamps: bool = False, greetings: bool = True) -> None:
        self._console = Console(timestamps)
        self._greetings = greetings
        self._partial: dict[tuple[int, int], LineSplitter] = {}
        self._tails: dict[int, OutputTail] = {}
        self._held: dict[int, _Held] = {}
        self._raising: set[int] = set()
        self._files: dict[tuple[int, int], IO[bytes]] = {}
        self._folder, self._digits = folder, len(str(ranks - 1))
        for rank in range(ranks):
            self.add(rank)

    def add(self, rank: int) -> None:
        """Makes room for one more rank. Raises LaunchError where a file of it cannot be made."""
        self._tails[rank] = OutputTail()
        of_rank = Path(self._folder) / f"rank.{rank:0{self._digits}}"
        try:
            for stream, name in enumerate(STREAMS) if self._folder else ():
                of_rank.mkdir(parents=True, exist_ok=True)
                # Follows no link: the folder may be one that others can write to.
                self._files[rank, stream] = opened(of_rank / name, "wb", buffering=0)
        except OSError as error:
            raise LaunchError(
                f"--output-filename {self._folder}: expected a folder that can be made, and written to, on this host. "
                f"{error.filename}: {error.strerror}."
            ) from None

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        for rank, stream in list(self._partial):
            self.end_of(rank, stream)
        for rank in list(self._held):
            self._release(rank)
        self._console.finish_line()
        for file in self._files.values():
            file.close()

    def write(self, rank: int, stream: int, chunk: bytes) -> None:
        """Prints the complete lines of a rank's output so far (or mpirun's); `stream` is 0 for stdout, 1 for stderr."""
        self._copy(rank, stream, chunk)
        for segment in self._partial.setdefault((rank, stream), LineSplitter()).feed(chunk):
            self._show(rank, stream, segment)
        self._console.flush()

    def look_around(self) -> None:
        """Shows delayed output: call it several times a second."""
        now = time.monotonic()
        for (rank, stream), splitter in self._partial.items():
            if splitter and now - splitter.fed > _IDLE_SECONDS:
                self._show(rank, stream, splitter.unfinished())
        for rank, held in list(self._held.items()):
            if now > held.until:
                self._release(rank)
        self._console.flush()

    def end_of(self, rank: int, stream: int) -> None:
        """Prints an incomplete last line of the rank."""
        splitter = self._partial.pop((rank, stream), LineSplitter())
        for segment in (*splitter.feed(b"", final=True), splitter.unfinished()):
            if segment.text:
                self._show(rank, stream, Segment(segment.text, "\n"))
        self._console.flush()

    def raises(self, rank: int) -> None:
        """The rank has reported that an exception ends it: its traceback follows, if it has not arrived yet."""
        self._raising.add(rank)
        if rank in self._held:
            self._held[rank].until = time.monotonic() + _RAISES_SECONDS

    def end_of_rank(self, rank: int, last: bool = False) -> None:
        """The rank has ended. With `last` its traceback waits for `tail_of`."""
        for stream in range(len(STREAMS)):
            self.end_of(rank, stream)
        if last and rank in self._held:
            self._held[rank].until = float("inf")
        else:
            self._release(rank)

    def tail_of(self, rank: int) -> list[str]:
        """The rank's last traceback with all that came after, else the end of what it printed. Ends the line here."""
        held = self._held.pop(rank, None)
        self._console.finish_line()
        if held:
            return [segment.text for segment in held.segments]
        return self._tails[rank].lines() if rank in self._tails else []

    def _show(self, rank: int, stream: int, segment: Segment) -> None:
        if rank in self._tails:
            if stream and not self._greetings and _GREETING.match(segment.text):
                return
            self._tails[rank].add(stream, segment)
            if stream and (rank in self._held or starts_traceback(segment.text)):
                held = self._held.setdefault(rank, _Held(_RAISES_SECONDS if rank in self._raising else _HOLD_SECONDS))
                held.add(segment)
                if held.characters > _HELD_CHARACTERS:
                    self._release(rank)
                return
        elif _OF_NO_USE in segment.text:
            return
        self._console.show(rank, stream, segment)

    def _release(self, rank: int) -> None:
        if held := self._held.pop(rank, None):
            for segment in held.segments:
                self._console.show(rank, 1, segment)
            self._console.flush()

    def _copy(self, rank: int, stream: int, chunk: bytes) -> None:
        """A full disk ends the copy, not the job."""
        if file := self._files.get((rank, stream)):
            try:
                while chunk:
                    chunk = chunk[file.write(chunk) :]
            except OSError as error:
                del self._files[rank, stream]
                file.close()
                say(f"{file.name}: {error.strerror}. This file ends here.")

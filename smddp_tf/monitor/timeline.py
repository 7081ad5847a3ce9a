"""Puts the files of a timeline together: at its end, and offline; see `smddp_tf.timeline`.

Rank 0 writes `FILE`, every other rank `FILE.rankN.part` on its own host. Each is valid by itself, and stays when a job
crashes.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from smddp_tf._warn import warn
from smddp_tf.monitor.lines import replacing

__all__ = ["finish", "merge", "parts_of"]

# Of rank 0's clock, in the first lines of each file: equal in those that belong together.
_START = re.compile(rb'"start_time_since_epoch_in_micros","args":{"value":(\d+)}')
_RANK = re.compile(rb'"pid": ?(\d+)')


def finish(path: str, hosts: Mapping[int, str]) -> None:
    """Merges the parts of a timeline that has ended into `path`; for rank 0. Never raises an `OSError`.

    Warns of parts that are on other hosts and not accessible here, and of files that cannot be read or written. These
    parts stay.

    Args:
        path: what rank 0 wrote.
        hosts: the ranks that have written a part, and where.
    """
    started = _started(Path(path))
    parts = {rank: Path(f"{path}.rank{rank}.part") for rank in hosts}
    seen = [part for part in parts.values() if started is not None and _started(part) == started]
    command = f"python -m smddp_tf.timeline merge {shlex.quote(path)}"
    try:
        if seen:
            merge(path, seen)
    except OSError as error:
        warn(f"The parts of the timeline '{path}' cannot be merged: {error}. They stay beside it; run: {command}")
        return
    if unseen := ", ".join(f"rank {rank} ({hosts[rank]})" for rank, part in parts.items() if part not in seen):
        warn(
            f"The timeline '{path}' does not include {unseen}: rank 0 does not see their parts, '{path}.rankN.part' on "
            f"these hosts. Copy them beside it and run: {command}"
        )


def parts_of(path: str | os.PathLike[str]) -> list[Path]:
    """Finds the files that the other ranks have written for a timeline, without those of an earlier job.

    Args:
        path: path of the timeline, the file of rank 0.

    Returns:
        List of `Path`s in the folder of `path`, in the order of ranks.
    """
    path = Path(path)
    started = _started(path)
    pattern = re.compile(re.escape(path.name) + r"\.rank(\d+)\.part")
    found = [(match, each) for each in path.parent.iterdir() if (match := pattern.fullmatch(each.name))]
    parts = [each for _, each in sorted(found, key=lambda pair: int(pair[0].group(1)))]
    return [part for part in parts if started is None or _started(part) in (None, started)]


def merge(
    path: str | os.PathLike[str], parts: Sequence[str | os.PathLike[str]] | None = None, keep: bool = False
) -> None:
    """Rewrites the timeline `path` with the events of its parts added, and removes them.

    Events that `path` already has of a rank, from a merge that kept the parts, are replaced by that rank's part.

    Args:
        path: the timeline that rank 0 wrote. It may be missing; then the parts alone are merged.
        parts: the other ranks' files. Defaults to those beside it.
        keep: bool, leaves the parts where they are. Defaults to `False`.

    Raises:
        FileNotFoundError: there is neither a timeline nor a part.
    """
    path = Path(path)
    others = [Path(part) for part in parts] if parts is not None else parts_of(path)
    if not path.exists() and not others:
        raise FileNotFoundError(f"There is no timeline '{path}', and no '{path.name}.rankN.part' beside it.")
    with replacing(path, "wb") as merged:
        if path.exists():
            os.fchmod(merged.fileno(), stat.S_IMODE(path.stat().st_mode))
        merged.writelines(_merged(path, others))
    for part in [] if keep else others:
        part.unlink()


def _merged(path: Path, parts: Sequence[Path]) -> Iterator[bytes]:
    ranks = {_rank(event) for part in parts for event in itertools.islice(_events(part), 1)}
    before = b"[\n"
    for source in [*([path] if path.exists() else []), *parts]:
        for event in _events(source):
            if source != path or _rank(event) not in ranks:
                yield before + event
                before = b",\n"
    yield b"\n]\n" if before == b",\n" else b"[\n]\n"


def _events(source: Path) -> Iterator[bytes]:
    """Returns the complete lines, without the commas after them: not a last one that was being written."""
    with open(source, "rb") as lines:
        for line in lines:
            if line.endswith((b"}\n", b"},\n")):
                yield line.rstrip(b",\n")


def _rank(event: bytes) -> bytes | None:
    found = _RANK.search(event)
    return found and found[1]


def _started(source: Path) -> int | None:
    """When the timeline that `source` is of began, in microseconds; None where it does not say, or cannot be read."""
    try:
        if not stat.S_ISREG(source.lstat().st_mode):
            return None
        with open(source, "rb") as file:
            found = _START.search(file.read(4096))
    except OSError:
        return None
    return int(found[1]) if found else None

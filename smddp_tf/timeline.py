"""Puts the files of a timeline together: at its end, and offline with `python -m smddp_tf.timeline merge FILE`.

Rank 0 writes `FILE`, every other rank `FILE.rankN.part` on its own host. Each is valid by itself, and stays when a job
crashes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from smddp_tf._warn import warn

__all__ = ["finish", "merge", "parts_of"]

# Of rank 0's clock, in the first lines of each file: equal in those that belong together.
_START = "start_time_since_epoch_in_micros"


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
            merge(path, seen, closed=True)
    except OSError as error:
        warn(f"The parts of the timeline '{path}' cannot be merged: {error}. They stay beside it; run: {command}")
        return
    if unseen := ", ".join(f"rank {rank} ({hosts[rank]})" for rank, part in parts.items() if part not in seen):
        warn(
            f"The timeline '{path}' does not include {unseen}: rank 0 does not see their parts, '{path}.rankN.part' on "
            f"these hosts. Copy them beside it and run: {command}"
        )


def parts_of(path: str | os.PathLike[str]) -> list[Path]:
    """The parts beside the timeline `path`, in the order of the ranks; not those that an earlier job has left."""
    path = Path(path)
    started = _started(path)
    pattern = re.compile(re.escape(path.name) + r"\.rank(\d+)\.part")
    found = [(match, each) for each in path.parent.iterdir() if (match := pattern.fullmatch(each.name))]
    parts = [each for _, each in sorted(found, key=lambda pair: int(pair[0].group(1)))]
    return [part for part in parts if started is None or _started(part) in (None, started)]


def merge(
    path: str | os.PathLike[str],
    parts: Sequence[str | os.PathLike[str]] | None = None,
    keep: bool = False,
    closed: bool = False,
) -> int:
    """Rewrites the timeline `path` with the events of its parts added, and removes them.

    Activities that were under way when a rank ended end with its last event. What `path` has of a rank already, from a
    merge that kept the parts, gives way to that rank's part.

    Args:
        path: the timeline that rank 0 wrote. It may be missing; then the parts alone are merged.
        parts: the other ranks' files. Defaults to those beside it.
        keep: bool, leaves the parts where they are. Defaults to `False`.
        closed: bool, the engine has written all of them to their end, so that nobody need look at their lines. Defaults
            to `False`.

    Returns:
        How many lines could not be read, such as one that was being written.

    Raises:
        FileNotFoundError: there is neither a timeline nor a part.
    """
    path = Path(path)
    others = [Path(part) for part in parts] if parts is not None else parts_of(path)
    sources = [*([path] if path.exists() else []), *others]
    if not sources:
        raise FileNotFoundError(f"There is no timeline '{path}', and no '{path.name}.rankN.part' beside it.")
    handle, temporary = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as merged:
            if path.exists():
                os.fchmod(handle, stat.S_IMODE(path.stat().st_mode))
            broken = _copy(merged, sources) if closed else _write(merged, sources, path)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    for part in [] if keep else others:
        part.unlink()
    return broken


def _started(source: Path) -> Any:
    """When the timeline that `source` is of began, in microseconds; None where it does not say, or cannot be read."""
    try:
        if not stat.S_ISREG(source.lstat().st_mode):
            return None
        first = itertools.islice(_events(source), 3)
        return next((event["args"]["value"] for _, event in first if event.get("name") == _START), None)
    except (OSError, LookupError, TypeError):
        return None


def _copy(merged: BinaryIO, sources: Sequence[Path]) -> int:
    for number, source in enumerate(sources):
        merged.write(b"," if number else b"[")
        with open(source, "rb") as whole:
            whole.seek(len(b"["))
            shutil.copyfileobj(whole, merged, 1 << 20)
        if number < len(sources) - 1:
            merged.seek(-len(b"\n]\n"), os.SEEK_CUR)
    return 0


def _write(merged: BinaryIO, sources: Sequence[Path], path: Path) -> int:
    broken = 0
    before = "[\n"
    of_parts = {next((event["pid"] for _, event in _events(part) if event), None) for part in sources if part != path}
    for source in sources:
        opened: dict[tuple[Any, Any], list[str]] = {}
        latest: dict[Any, float] = {}
        for text, event in _events(source):
            broken += not event
            if not event or (source == path and event.get("pid") in of_parts):
                continue
            _follow(event, opened, latest)
            merged.write((before + text).encode())
            before = ",\n"
        for (pid, tid), names in opened.items():
            for name in reversed(names):
                end = {"name": name, "ph": "E", "pid": pid, "tid": tid, "ts": latest[pid]}
                merged.write((before + json.dumps(end, separators=(",", ":"))).encode())
                before = ",\n"
    merged.write(b"\n]\n" if before == ",\n" else b"[\n]\n")
    return broken


def _events(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line and its event, which is empty where the line cannot be read."""
    with open(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            text = line.strip().rstrip(",")
            if text in ("[", "]", ""):
                continue
            try:
                event = json.loads(text)
            except ValueError:
                event = None
            yield text, event if isinstance(event, dict) else {}


def _follow(event: dict[str, Any], opened: dict[tuple[Any, Any], list[str]], latest: dict[Any, float]) -> None:
    track = (event.get("pid"), event.get("tid"))
    if "ts" in event:
        latest[track[0]] = max(event["ts"], latest.get(track[0], 0.0))
    if event.get("ph") == "B":
        opened.setdefault(track, []).append(event.get("name", ""))
    elif event.get("ph") == "E" and opened.get(track):
        opened[track].pop()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m smddp_tf.timeline", description="Timelines of smddp_tf.")
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "merge", help="add to FILE what the other ranks have written"
    )
    command.add_argument("file", metavar="FILE", help="what rank 0 wrote")
    command.add_argument("parts", metavar="PART", nargs="*", help="other ranks' files; default: FILE.rankN.part")
    command.add_argument("--keep", action="store_true", help="do not remove the parts")
    chosen = parser.parse_args(arguments)
    try:
        broken = merge(chosen.file, chosen.parts or None, chosen.keep)
    except OSError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    if broken:
        print(f"{parser.prog}: {broken} line(s) could not be read and are left out.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

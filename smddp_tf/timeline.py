"""Puts the parts of a timeline together that a job left behind: `python -m smddp_tf.timeline merge FILE`.

A job that ends well needs none of this: `FILE` holds all ranks. One that crashes leaves `FILE`, with what rank 0 did,
and on every rank's host `FILE.rankN.part`. Each is valid by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

__all__ = ["merge", "parts_of"]


def parts_of(path: str | os.PathLike[str]) -> list[Path]:
    """The parts beside the timeline `path`, in the order of the ranks."""
    path = Path(path)
    pattern = re.compile(re.escape(path.name) + r"\.rank(\d+)\.part")
    found = [(match, each) for each in path.parent.iterdir() if (match := pattern.fullmatch(each.name))]
    return [each for _, each in sorted(found, key=lambda pair: int(pair[0].group(1)))]


def merge(
    path: str | os.PathLike[str], parts: Sequence[str | os.PathLike[str]] | None = None, keep: bool = False
) -> int:
    """Rewrites the timeline `path` with the events of its parts added, and removes them.

    Activities that were under way when a rank ended end with its last event. What `path` has of a rank already, from a
    job that ended while it was sent, gives way to that rank's part.

    Args:
        path: the timeline that rank 0 wrote. It may be missing; then the parts alone are merged.
        parts: the other ranks' files. Defaults to those beside it.
        keep: bool, leaves the parts where they are. Defaults to `False`.

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
        with os.fdopen(handle, "w", encoding="utf-8") as merged:
            broken = _write(merged, sources, path)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    for part in [] if keep else others:
        part.unlink()
    return broken


def _write(merged: TextIO, sources: Sequence[Path], path: Path) -> int:
    broken = 0
    before = "[\n"
    of_parts = {next((event["pid"] for event in _events(part) if event), None) for part in sources if part != path}
    for source in sources:
        opened: dict[tuple[Any, Any], list[str]] = {}
        latest: dict[Any, float] = {}
        for event in _events(source):
            if event is None:
                broken += 1
            if event is None or (source == path and event.get("pid") in of_parts):
                continue
            _follow(event, opened, latest)
            merged.write(before + json.dumps(event, separators=(",", ":")))
            before = ",\n"
        for (pid, tid), names in opened.items():
            for name in reversed(names):
                end = {"name": name, "ph": "E", "pid": pid, "tid": tid, "ts": latest[pid]}
                merged.write(before + json.dumps(end, separators=(",", ":")))
                before = ",\n"
    merged.write("\n]\n" if before == ",\n" else "[\n]\n")
    return broken


def _events(source: Path) -> Iterator[dict[str, Any] | None]:
    """One event per line; None for a line that cannot be read."""
    with open(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            text = line.strip().rstrip(",")
            if text in ("[", "]", ""):
                continue
            try:
                event = json.loads(text)
            except ValueError:
                event = None
            yield event if isinstance(event, dict) else None


def _follow(event: dict[str, Any], opened: dict[tuple[Any, Any], list[str]], latest: dict[Any, float]) -> None:
    lane = (event.get("pid"), event.get("tid"))
    if "ts" in event:
        latest[lane[0]] = max(event["ts"], latest.get(lane[0], 0.0))
    if event.get("ph") == "B":
        opened.setdefault(lane, []).append(event.get("name", ""))
    elif event.get("ph") == "E" and opened.get(lane):
        opened[lane].pop()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m smddp_tf.timeline", description="Timelines of smddp_tf.")
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "merge", help="add to FILE what the other ranks of a crashed job left"
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

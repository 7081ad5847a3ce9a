"""Reads a timeline and checks what must hold for every one."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Track:
    """What happened in one track of one rank: (activity, depth, begin, end), in the order of their ends."""

    name: str = ""
    spans: list[tuple[str, int, float, float]] = field(default_factory=list)

    def activities(self) -> set[str]:
        return {name for name, *_ in self.spans}


def read(path: Path | str, whole: bool = True) -> dict[int, dict[int, Track]]:
    """Rank -> thread -> track. Begins and ends must nest, and time must not run backwards.

    `whole`: every begin must have its end.
    """
    events = json.loads(Path(path).read_text(encoding="utf-8"))
    tracks: dict[int, dict[int, Track]] = defaultdict(lambda: defaultdict(Track))
    opened: dict[tuple[int, int], list[tuple[str, float]]] = defaultdict(list)
    latest: dict[tuple[int, int], float] = defaultdict(float)
    for event in events:
        rank, thread, name = event["pid"], event["tid"], event["name"]
        if event["ph"] == "M":
            if name == "thread_name":
                tracks[rank][thread].name = event["args"]["name"]
            elif name == "process_name":
                assert f"rank {rank} " in event["args"]["name"]
                tracks[rank][0].name = event["args"]["name"]
            continue
        assert event["ts"] >= latest[rank, thread], event
        latest[rank, thread] = event["ts"]
        stack = opened[rank, thread]
        if event["ph"] == "B":
            stack.append((name, event["ts"]))
        elif event["ph"] == "E":
            began, at = stack.pop()
            assert began == name, event
            tracks[rank][thread].spans.append((name, len(stack), at, event["ts"]))
        else:
            assert event["ph"] == "i", event
            tracks[rank][thread].spans.append((name, 0, event["ts"], event["ts"]))
    assert not (whole and any(opened.values())), "an activity has no end"
    return {rank: dict(threads) for rank, threads in tracks.items()}


def track(tracks: dict[int, Track], name: str) -> Track:
    """The track of that name."""
    found = [each for each in tracks.values() if each.name == name]
    assert found, f"no track {name!r} among {sorted(each.name for each in tracks.values())}"
    return found[0]

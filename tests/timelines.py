"""Reads a timeline and checks what must hold for every one."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Lane:
    """What happened in one lane of one rank: (activity, depth, begin, end), in the order of their ends."""

    name: str = ""
    spans: list[tuple[str, int, float, float]] = field(default_factory=list)

    def activities(self) -> set[str]:
        return {name for name, *_ in self.spans}


def read(path: Path | str) -> dict[int, dict[int, Lane]]:
    """Rank -> thread -> lane. Every begin must have its end, they must nest, and time must not run backwards."""
    events = json.loads(Path(path).read_text(encoding="utf-8"))
    lanes: dict[int, dict[int, Lane]] = defaultdict(lambda: defaultdict(Lane))
    opened: dict[tuple[int, int], list[tuple[str, float]]] = defaultdict(list)
    latest: dict[tuple[int, int], float] = defaultdict(float)
    for event in events:
        rank, thread, name = event["pid"], event["tid"], event["name"]
        if event["ph"] == "M":
            if name == "thread_name":
                lanes[rank][thread].name = event["args"]["name"]
            elif name == "process_name":
                assert f"rank {rank} " in event["args"]["name"]
                lanes[rank][0].name = event["args"]["name"]
            continue
        assert event["ts"] >= latest[rank, thread], event
        latest[rank, thread] = event["ts"]
        stack = opened[rank, thread]
        if event["ph"] == "B":
            stack.append((name, event["ts"]))
        elif event["ph"] == "E":
            began, at = stack.pop()
            assert began == name, event
            lanes[rank][thread].spans.append((name, len(stack), at, event["ts"]))
        else:
            assert event["ph"] == "i", event
            lanes[rank][thread].spans.append((name, 0, event["ts"], event["ts"]))
    assert not any(opened.values()), "an activity has no end"
    return {rank: dict(threads) for rank, threads in lanes.items()}


def lane(lanes: dict[int, Lane], name: str) -> Lane:
    """The lane of that name."""
    found = [each for each in lanes.values() if each.name == name]
    assert found, f"no lane {name!r} among {sorted(each.name for each in lanes.values())}"
    return found[0]

"""What a run found out, as rows; and the file it is kept in, with date and machine."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["NODE", "TRAINING", "Findings", "Row", "load", "machine", "results_path", "save"]

NODE, TRAINING = "node", "training"


@dataclass(frozen=True)
class Row:
    """One candidate in one case.

    Attributes:
        place: "node", or the lab's nodes x ranks a node and Mbit/s: "lab 4x2 200"; or "training": steps of whole
            training on a node, on one rank those on one core alone (`benchmarks.training`).
        ranks: in all.
        candidate: a name of `peers.CANDIDATES`, of `lab`, or of `training.suite`.
        door: see `Case`; in the lab also "bfloat16" and "int8", an array that travels as that; of training "step".
        bytes: of the arrays, as they are in memory.
        model: whose gradients, or empty.
        wrong: elements that were not exact, over all ranks; of training ranks with other weights than they must have.
        median: seconds of the slowest rank; so are p10 and p90.
        repetitions: how many.
        sent: bytes that left the busiest node per allreduce; lab only.
    """

    place: str
    ranks: int
    candidate: str
    door: str
    bytes: int
    model: str
    wrong: int
    median: float
    p10: float
    p90: float
    repetitions: int
    sent: float | None = None


@dataclass
class Findings:
    """All that a run found out.

    Attributes:
        when: when it began.
        machine: where.
        rows: the measured collectives.
        steps: training steps, see `overlap`.
        cost: memory and idle CPU of the engine, see `Smddp.cost`.
        launch: seconds of each start, see `benchmarks.launch`.
        alone: seconds of a step on one rank, see `benchmarks.training.alone`.
        about: versions of the candidates.
        notes: who was missing or failed.
    """

    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    machine: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    cost: dict[str, Any] = field(default_factory=dict)
    launch: dict[str, list[float]] = field(default_factory=dict)
    alone: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def find(self, candidate: str, door: str, size: int, ranks: int, place: str = NODE, model: str = "") -> Row | None:
        """The row of that case, or None when it was not measured."""
        wanted = (place, ranks, candidate, door, size, model)
        for row in self.rows:
            if (row.place, row.ranks, row.candidate, row.door, row.bytes, row.model) == wanted:
                return row
        return None


def machine() -> dict[str, Any]:
    """What the figures depend on and a reader cannot know."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": platform.platform(),
        "huge_pages": Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii").strip(),
    }


def results_path(name: str) -> Path:
    """Where a benchmark that begins now keeps its results."""
    return Path(__file__).parent / "results" / time.strftime(f"%Y-%m-%d-%H%M-{name}.json", time.gmtime())


def save(findings: Findings, path: Path) -> None:
    """Writes the results file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(findings), indent=1) + "\n", encoding="utf-8")


def load(paths: Iterable[Path]) -> Findings:
    """Reads results files as one; where two measured the same, the first named counts."""
    together = Findings(when="")
    for path in paths:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in data.pop("rows")]
        one = dataclasses.replace(Findings(when=""), **data, rows=rows)
        together.when = ", ".join(filter(None, (together.when, one.when)))
        together.rows += one.rows
        together.steps += one.steps
        together.notes += one.notes
        together.machine = together.machine or one.machine
        together.cost = together.cost or one.cost
        together.launch = together.launch or one.launch
        together.alone = {**one.alone, **together.alone}
        together.about = {**one.about, **together.about}
    return together

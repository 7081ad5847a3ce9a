"""What was found as a table: for a terminal, as markdown and JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from benchmarks.findings import machine
from tests.faults.case import Case, Found
from tests.support.mpirun import ROOT

__all__ = ["Row", "as_markdown", "as_table", "save", "update_page"]

_PAGE = ROOT / "docs" / "reliability.md"
_BEGIN, _END = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"

_HEADINGS = (
    "case",
    "world, launcher",
    "promised",
    "noticed s",
    "all ended s",
    "exit codes",
    "first line",
    "left behind",
    "",
)
_ON_THE_PAGE = ("case", "noticed s", "all ended s", "left behind", "")


@dataclass
class Row:
    """A case and what each of its runs found."""

    case: Case
    found: list[Found] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Every broken promise, each once."""
        return list(dict.fromkeys(text for one in self.found for text in one.wrong))

    def cells(self) -> list[str]:
        first = self.found[0] if self.found else Found()
        noticed = [max(one.noticed.values()) for one in self.found if one.noticed]
        ended = [one.all_ended for one in self.found if one.codes]
        kept = sum(not one.wrong for one in self.found)
        left = list(dict.fromkeys(text for one in self.found for text in [*one.left, *one.left_by_others]))
        return [
            self.case.name,
            f"{self.case.world}, {self.case.launcher.name}",
            self.case.promise,
            _seconds(noticed),
            _seconds(ended),
            first.codes_text(),
            _short(first.message),
            "; ".join(left) or "nothing",
            f"{kept} of {len(self.found)} kept" if len(self.found) > 1 else "kept" if kept else "BROKEN",
        ]


def as_table(rows: list[Row]) -> Table:
    table = Table(title="failures: promised and measured", show_lines=True)
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row.cells()), style="red" if row.wrong else None)
    return table


def as_markdown(rows: list[Row], headings: tuple[str, ...] = _HEADINGS) -> str:
    columns = [_HEADINGS.index(heading) for heading in headings]
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    for row in rows:
        cells = row.cells()
        lines.append("| " + " | ".join(cells[column].replace("|", r"\|") for column in columns) + " |")
    return "\n".join(lines) + "\n"


def update_page(rows: list[Row]) -> None:
    """Writes the columns that a reader of docs/reliability.md needs into it, between its marks."""
    before, rest = _PAGE.read_text(encoding="utf-8").split(_BEGIN)
    after = rest.split(_END)[1]
    _PAGE.write_text(f"{before}{_BEGIN}{_head()}{as_markdown(rows, _ON_THE_PAGE)}{_END}{after}", encoding="utf-8")


def save(rows: list[Row], path: Path) -> None:
    """Writes `path`.json and `path`.md."""
    described = [
        {
            "case": row.case.name,
            "world": row.case.world,
            "launcher": row.case.launcher.name,
            "promised": row.case.promise,
            "runs": [
                {key: value for key, value in dataclasses.asdict(one).items() if key != "output"} for one in row.found
            ],
        }
        for row in rows
    ]
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    text = json.dumps({"when": when, "machine": machine(), "cases": described}, indent=1)
    path.with_name(path.name + ".json").write_text(text + "\n", encoding="utf-8")
    path.with_name(path.name + ".md").write_text(_head() + as_markdown(rows), encoding="utf-8")


def _head() -> str:
    when = time.strftime("%Y-%m-%d", time.gmtime())
    return (
        f"Measured on {when}, {os.cpu_count()} cores. Seconds after the failure, of repetitions median (largest).\n\n"
    )


def _seconds(values: list[float]) -> str:
    if not values:
        return "-"
    if len(values) == 1:
        return _one(values[0])
    return f"{_one(statistics.median(values))} ({_one(max(values))})"


def _one(value: float) -> str:
    return "never" if value == float("inf") else f"{value:.1f}"


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."

"""Findings as tables for a terminal."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.cases import least_bytes
from benchmarks.findings import NODE, TRAINING, Findings, Row, save
from benchmarks.measure import algorithm_bandwidth, bus_bandwidth, duration_text, three_digits
from benchmarks.targets import Verdict, communication_share, lab_shape, verdicts, wire_ratio

__all__ = ["console_of", "finish", "show"]

DOORS = {
    "array": "NumPy",
    "eager": "NumPy, eager",
    "function": "tf.function",
    "list": "gradients",
    "named": "by name",
    "grouped": "grouped",
    "plus": "tf.function x + 1",
    "alone": "step alone",
    "tape": "step, tape",
    "applied": "SGD step alone",
    "optimizer": "SGD step, optimizer",
    "bfloat16": "bf16 wire",
    "int8": "int8 wire",
}
MARKS = {True: "[green]pass[/]", False: "[red]MISS[/]"}


def console_of(width: int) -> Console:
    """The terminal, or a file of so many columns."""
    return Console(width=None if sys.stdout.isatty() else width)


def finish(findings: Findings, path: Path, console: Console) -> None:
    """Writes the results file, and prints what is in it."""
    save(findings, path)
    show(findings, console)
    console.print(f"written to {path}")


def show(findings: Findings, console: Console) -> None:
    """Prints all that was found out; the targets last, where a reader looks first."""
    for ranks in sorted({row.ranks for row in findings.rows if row.place == NODE}):
        console.print(_node_table(findings, ranks))
    for model in dict.fromkeys(row.model for row in findings.rows if row.place == TRAINING):
        console.print(_training_table(findings, model))
    if findings.alone:
        console.print(_alone_table(findings))
    for place in sorted({row.place for row in findings.rows} - {NODE, TRAINING}):
        console.print(_lab_table(findings, place))
    if findings.steps:
        console.print(_steps_table(findings))
    if findings.cost:
        console.print(_cost_table(findings))
    for note in findings.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    console.print(targets_table(verdicts(findings)))


def targets_table(found: list[Verdict]) -> Table:
    """Each target with what was measured beside it."""
    table = Table(title="targets")
    for column in ("case", "target", "measured", "", "times"):
        table.add_column(column, justify="right" if column in ("target", "measured") else "left")
    missing = sum(one.measured is None for one in found)
    if missing:
        table.caption = f"{missing} of {len(found)} targets need something that was not measured"
    for one in (one for one in found if one.measured is not None):
        target = f"{'<=' if one.at_most else '>='} {one.limit:g} {one.unit}"
        table.add_row(one.what, target, f"{three_digits(one.measured)} {one.unit}", MARKS[one.passed], one.detail)
    return table


def _node_table(findings: Findings, ranks: int) -> Table:
    table = Table(title=f"{ranks} rank(s) on one node: median ms")
    rows = [row for row in findings.rows if row.place == NODE and row.ranks == ranks]
    names = list(dict.fromkeys(row.candidate for row in rows))
    table.add_column("case")
    for name in [*names, "wrong", "p10-p90 of ours", "alg GB/s", "bus GB/s"]:
        table.add_column(name, justify="right")
    for case in dict.fromkeys((row.door, row.model, row.bytes) for row in rows):
        of_case = {row.candidate: row for row in rows if (row.door, row.model, row.bytes) == case}
        cells = [f"{of_case[name].median * 1e3:.4g}" if name in of_case else "-" for name in names]
        wrong = sum(row.wrong for row in of_case.values())
        table.add_row(_label(*case), *cells, str(wrong), *_bandwidths(of_case.get("smddp_tf")))
    return table


def _training_table(findings: Findings, model: str) -> Table:
    rows = [row for row in findings.rows if row.place == TRAINING and row.model == model]
    table = Table(title=f"training: a step of {model}, {rows[0].bytes / (1 << 20):.2f} MiB of gradients")
    table.add_column("who")
    for name in ("alone on a core", "2 ranks, a thread each", "communication / alone", "wrong"):
        table.add_column(name, justify="right")
    for name in dict.fromkeys(row.candidate for row in rows):
        of_ranks = {row.ranks: row for row in rows if row.candidate == name}
        share = communication_share(findings, name, model)
        times = [_time(of_ranks[ranks]) if ranks in of_ranks else "-" for ranks in (1, 2)]
        wrong = sum(row.wrong for row in of_ranks.values())
        table.add_row(name, *times, "-" if share is None else f"{share:.2f}", str(wrong))
    return table


def _alone_table(findings: Findings) -> Table:
    table = Table(title="training on one core: median of processes (fastest - slowest)")
    table.add_column("model")
    names = list(dict.fromkeys(name for of_model in findings.alone.values() for name in of_model))
    for name in names:
        table.add_column(name, justify="right")
    for model, of_model in findings.alone.items():
        times = [(statistics.median(of_model[name]), min(of_model[name]), max(of_model[name])) for name in names]
        table.add_row(model, *("{} ({} - {})".format(*map(duration_text, time)) for time in times))
    return table


def _lab_table(findings: Findings, place: str) -> Table:
    nodes, per_node, rate = lab_shape(place)
    table = Table(title=f"lab: {nodes} nodes x {per_node} ranks, {rate} Mbit/s")
    for column in ("case", "who", "median (p10-p90)", "time / bound", "sent a node / ideal", "wrong"):
        table.add_column(column, justify="left" if column in ("case", "who") else "right")
    for row in (row for row in findings.rows if row.place == place):
        ideal = least_bytes(row.door, nodes, per_node) * row.bytes
        sent = f"{row.sent / ideal:.3f}" if row.sent else "-"
        case = _label(row.door, row.model, row.bytes)
        table.add_row(case, row.candidate, _time(row), f"{wire_ratio(row):.2f}", sent, str(row.wrong))
    return table


def _steps_table(findings: Findings) -> Table:
    table = Table(title="training step: ms")
    for column in ("place", "model", "compute", "communication", "together", "hidden", "together / max", "cores need"):
        table.add_column(column, justify="left" if column in ("place", "model") else "right")
    for step in findings.steps:
        slower = max(step["compute"], step["communication"])
        times = [f"{1e3 * step[name]:.1f}" for name in ("compute", "communication", "together")]
        ratio = f"{step['together'] / slower:.2f}"
        hidden, cores = f"{100 * step['hidden']:.0f} %", f"{1e3 * step['cores_need']:.1f}"
        table.add_row(step["place"], step["model"], *times, hidden, ratio, cores)
    return table


def _cost_table(findings: Findings) -> Table:
    table = Table(title=f"engine: {100 * findings.cost['idle_cpu']:.2f} % of a core while idle; memory it keeps, MiB")
    for column in ("reduced at once", "growth of the process", "shared memory of the engine"):
        table.add_column(column, justify="right")
    for one in findings.cost["memory"]:
        arena = one["stats"].get("arena_bytes")
        cells = (one["bytes"], one["resident_growth"], arena)
        table.add_row(*("-" if value is None else f"{value / (1 << 20):.1f}" for value in cells))
    return table


def _label(door: str, model: str, size: int) -> str:
    return f"{DOORS.get(door, door)} {model or _bytes(size)}"


def _bytes(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def _time(row: Row) -> str:
    return f"{duration_text(row.median)} ({duration_text(row.p10)} - {duration_text(row.p90)})"


def _bandwidths(row: Row | None) -> tuple[str, str, str]:
    if row is None:
        return "-", "-", "-"
    algorithm = algorithm_bandwidth(row.bytes, row.median)
    spread = f"{row.p10 * 1e3:.3g}-{row.p90 * 1e3:.3g}"
    return spread, f"{algorithm / 1e9:.2f}", f"{bus_bandwidth(row.bytes, row.median, row.ranks) / 1e9:.2f}"

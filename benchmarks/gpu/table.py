"""A run as markdown, for benchmarks/results. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.judge import bandwidth, bound_of_ranks, copy_rate, median_of_ranks, verdicts
from benchmarks.measure import algorithm_bandwidth, duration_text, three_digits

__all__ = ["markdown"]

MARKS = {True: "pass", False: "**MISS**", None: "not measured"}


def markdown(report: dict[str, Any]) -> str:
    """Where and when, the targets with what was measured, and the figures behind them."""
    parts = [_head(report), _targets(report), _copies(report), _ranks(report), _run(report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(report: dict[str, Any]) -> str:
    facts = report.get("facts", {})
    lines = [f"# GPU check, {report['when']}", ""]
    if report["fake"]:
        lines += ["**fake GPU**: host memory that is called a GPU. This shows that the program runs, and no speed.", ""]
    for gpu in facts.get("gpus", []):
        lines.append(f"- {gpu.get('name')}, driver {gpu.get('driver_version')}, {gpu.get('memory.total')}")
    packages = ", ".join(f"{name} {version}" for name, version in facts.get("packages", {}).items())
    lines += [f"- Python {facts.get('python', '?')}; {packages}", f"- nvcc: {facts.get('nvcc', '?')}"]
    machine = facts.get("machine", {})
    lines.append(
        f"- {machine.get('processor', '?')}, {machine.get('cores', '?')} cores, Linux {facts.get('kernel', '?')}"
    )
    lines.append(f"- commit {report.get('commit') or 'unknown'}")
    return "\n".join(lines)


def _targets(report: dict[str, Any]) -> str:
    rows = []
    for one in verdicts(report):
        target = f"{'<=' if one.at_most else '>='} {one.limit:g}{one.unit}"
        measured = "-" if one.measured is None else f"{_figure(one.measured)}{one.unit}"
        rows.append((one.what, target, measured, MARKS[one.passed], one.detail))
    return "## Targets\n\n" + _table(("what", "target", "measured", "", ""), rows)


def _copies(report: dict[str, Any]) -> str:
    rows = []
    mark = copy_rate(report)
    for part in ("bandwidth", "torch copies"):
        for row in (report["parts"].get(part, {}).get("answer") or {}).get("rows", []):
            inside = "host" not in row["what"]
            share = f"{bandwidth(row) / mark:.2f}" if mark and inside and not report["fake"] else "-"
            spread = f"{duration_text(row['p10'])} - {duration_text(row['p90'])}"
            rate = "-" if report["fake"] else f"{bandwidth(row) / 1e9:.0f}"
            size = f"{row['bytes'] / 1e6:.4g}"
            rows.append((row["what"], row["how"], size, duration_text(row["median"]), spread, rate, share))
    if not rows:
        return ""
    clock = (report["parts"].get("bandwidth", {}).get("answer") or {}).get("clock", "?")
    columns = ("what", "how", "MB read + written", "median", "p10 - p90", "GB/s", "of the copy bandwidth")
    note = f"Clock of smddp_tf's rows: {clock}. Inputs and outputs rotate through more memory than the caches hold."
    return f"## Copies on the device\n\n{note}\n\n" + _table(columns, rows)


def _ranks(report: dict[str, Any]) -> str:
    rows = []
    for name, part in report["parts"].items():
        answers = (part.get("answer") or {}).get("ranks")
        if not answers:
            continue
        for row in answers[0].get("rows", []):
            median = median_of_ranks(answers, row["list"])
            if median is None:
                continue
            bound = bound_of_ranks(report, part.get("stage", ""), len(answers), row["bytes"])
            over = f"{duration_text(bound)}, {three_digits(median / bound)}x" if bound and not report["fake"] else "-"
            rate = "-" if report["fake"] else f"{algorithm_bandwidth(row['bytes'], median) / 1e9:.3g}"
            wrong = sum(one["wrong"] for answer in answers for one in answer["rows"] if one["list"] == row["list"])
            rows.append((name, row["list"], row.get("arrays", "torch"), duration_text(median), rate, over, str(wrong)))
    if not rows:
        return ""
    columns = ("ranks", "gradients", "arrays of", "step", "algorithm GB/s", "bound, step / bound", "wrong")
    note = (
        "All ranks on one GPU (but for `nccl`). A step: the whole list at once, of the slowest rank. Bound "
        "of `host`: every rank's bytes cross the bus once each way."
    )
    return f"## Allreduce\n\n{note}\n\n" + _table(columns, rows)


def _run(report: dict[str, Any]) -> str:
    rows = [(name, part["state"], f"{part['seconds']:.0f} s", _line(part)) for name, part in report["parts"].items()]
    return "## Parts of this run\n\n" + _table(("part", "state", "time", "note"), rows)


def _line(part: dict[str, Any]) -> str:
    answer = part.get("answer") or {}
    errors = [one["error"] for one in [answer, *answer.get("ranks", [])] if one.get("error")]
    notes = [errors[0] if errors else telling_line(part.get("note", "")), answer.get("clock_note", "")]
    if left_out := answer.get("left_out"):
        notes.append(f"no time for {len(left_out)}: {left_out[0]} ...")
    notes += [f"wrong: {failure}" for failure in answer.get("failures", [])[:3]]
    return "; ".join(note for note in notes if note)


def telling_line(text: str) -> str:
    """The line of a program's output that most likely says what went wrong, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"(?i)error|killed|signal|not found|cannot", line)]
    line = (telling or lines or [""])[-1]
    return line if len(line) <= 200 else line[:200] + "..."


def _figure(value: float) -> str:
    return str(int(value)) if value == int(value) else three_digits(value)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    clean = [[" ".join(cell.replace("|", "/").split()) for cell in row] for row in rows]
    lines = [columns, ["---"] * len(columns), *clean]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

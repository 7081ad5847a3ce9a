"""The pure parts of `make test-matrix`: versions, what pytest's last line says, the table for docs/releases.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Version(NamedTuple):
    """A TensorFlow, and the Python and the Keras it is tested with."""

    tensorflow: str  # the minor version: its newest patch is installed
    python: str  # the minor version; where it is not on the machine, the Python that runs the tool
    keras: str  # a requirement
    other: str  # a requirement: the Keras of the suite OTHER_KERAS
    why: str  # the first Keras


# The list. Between them they cover Python 3.9 to 3.13 and Keras 3.3 to the newest; each TensorFlow runs with an old
# Keras and with the newest that its Python has. A Keras that an installed TensorFlow does not fit is not in anybody's
# environment. The tf_keras of TensorFlow 2.16 to 2.18 fails on Python 3.12: it calls random.randint(1, 1e9).
VERSIONS = (
    Version("2.16", "3.9", "keras==3.3.3", "keras", "the oldest of both, and the oldest Keras that is supported"),
    Version("2.17", "3.10", "keras==3.4.1", "keras", "of the month of TensorFlow 2.17"),
    Version("2.18", "3.11", "keras==3.5.0", "keras", "before Keras 3.6 changed loss scale and accumulation"),
    Version("2.19", "3.12", "keras==3.9.2", "keras", "of the month after TensorFlow 2.19"),
    Version("2.20", "3.12", "keras==3.11.3", "keras", "of the month of TensorFlow 2.20"),
    Version("2.21", "3.13", "keras>=3.15", "keras==3.12.*", "the newest of both: what a new environment gets"),
)
OTHER_KERAS = "2 ranks, another Keras"

BEGIN, END = "<!-- test-matrix: begin -->", "<!-- test-matrix: end -->"
WIDEST = 120  # characters of a line, as in all documents
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")

Row = Mapping[str, Any]


def chosen(names: Sequence[str]) -> list[Version]:
    """The versions of those minors, in the order of the list; all of them for none.

    Raises:
        ValueError: a name is not in the list.
    """
    known = [version.tensorflow for version in VERSIONS]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ValueError(f"Versions must be among {', '.join(known)}. Received: {', '.join(unknown)}.")
    return [version for version in VERSIONS if not names or version.tensorflow in names]


def counts(output: str) -> dict[str, int]:
    """What pytest's last summary line counted: `{"passed": 517, "failed": 2, ...}`, without what did not occur.

    Empty when no line of the output is a summary, which is how a run that crashed looks.
    """
    for line in reversed(_without_colours(output).splitlines()):
        found = re.findall(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?)\b", line)
        if found and re.search(r" in [\d.]+s\b", line):
            numbers = {what.rstrip("s") if what.startswith("error") else what: int(number) for number, what in found}
            return {what: numbers[what] for what in OUTCOMES if what in numbers}
    return {}


def succeeded(suite: Mapping[str, Any]) -> bool:
    """True when the suite ended well: nothing failed and something ran."""
    tally = suite["counts"]
    return suite["returncode"] == 0 and tally.get("passed", 0) > 0 and not (tally.get("failed") or tally.get("error"))


def row_ok(row: Row) -> bool:
    """True when the library was built and every suite succeeded."""
    return not row.get("problem") and bool(row["suites"]) and all(succeeded(suite) for suite in row["suites"].values())


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table: versions as found in the environments, then a column for each suite."""
    suites = list(dict.fromkeys(name for row in rows for name in row["suites"])) or ["tests"]
    lines = [["TensorFlow", "Keras", "tf_keras", "Python", *suites]]
    for row in rows:
        versions = [row["found"].get(name, "") for name in ("tensorflow", "keras", "tf_keras", "python")]
        cells = [row["problem"], *[""] * (len(suites) - 1)] if row.get("problem") else [cell(row, s) for s in suites]
        lines.append([versions[0] or row["minor"], *versions[1:], *cells])
    if suites[-1] != OTHER_KERAS:
        return markdown(lines)
    second = [[line[0], line[-1]] for line in lines]  # a table of its own: the lines are too wide with it
    return markdown([line[:-1] for line in lines]) + "\n\n" + markdown(second)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a Markdown table; the first is the heading. In columns where that fits the width of a page."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    if sum(widths) + 3 * len(widths) + 1 > WIDEST:
        widths = [3] * len(widths)
    padded = [[text.ljust(width) for text, width in zip(line, widths)] for line in lines]
    padded.insert(1, ["-" * size for size in widths])
    return "\n".join("| " + " | ".join(line) + " |" for line in padded)


def between(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with `text` between two markers, by default those of docs/releases.md.

    Raises:
        ValueError: the markers are not there, each once and in order.
    """
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"The page must hold the lines {begin} and {end}, each once.")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text.strip()}\n{end}{rest.split(end)[1]}"


def merged(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """The rows of this run, and those of earlier runs of the same sources for the versions left out now."""
    rows = {row["minor"]: row for row in new}
    sources = {row["sources"] for row in rows.values()}
    for row in old:
        if row["minor"] not in rows and row["sources"] in sources:
            rows[row["minor"]] = row
    order = [version.tensorflow for version in VERSIONS]
    return sorted(rows.values(), key=lambda row: order.index(row["minor"]) if row["minor"] in order else len(order))


def cell(row: Row, name: str) -> str:
    """What a suite counted, after the Keras it ran with where that is not the row's; in bold where it failed."""
    suite = row["suites"].get(name)
    if suite is None:
        return "not run"
    text = ", ".join(f"{number} {what}" for what, number in suite["counts"].items())
    text = f"{suite['keras']}: {text}" if suite.get("keras") else text
    return text if succeeded(suite) else f"**{text or 'no result'}** (exit {suite['returncode']})"


def _without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)

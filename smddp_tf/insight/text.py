"""A diagnosis as text."""

from __future__ import annotations

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from smddp_tf.insight.diagnosis import Diagnosis
from smddp_tf.insight.finding import Finding

_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold cyan"}


def text_of(diagnosis: Diagnosis) -> str:
    """Without colours."""
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as captured:
        show(diagnosis, console)
    return captured.get().rstrip()


def show(diagnosis: Diagnosis, console: Console) -> None:
    """Prints it, the worst finding first."""
    console.print(Text(heading(diagnosis)))
    for finding in diagnosis.findings:
        console.print(_shown(finding))
    if not diagnosis.findings:
        console.print("No rule has found anything.")
    table = Table("rule", "result", box=None, padding=(0, 2, 0, 0), title_justify="left")
    for result in sorted(diagnosis.results, key=lambda each: each.status):
        table.add_row(result.rule.name, Text(": ".join(filter(None, (result.status, result.reason)))))
    console.print("", table)


def heading(diagnosis: Diagnosis) -> str:
    """What was recorded, in a line."""
    job = diagnosis.job
    missing = f" There is no recording of ranks {job['without_recording']}." if job["without_recording"] else ""
    end = "" if job["ended"] else " It has not come to its end."
    what = f"{job['ranks']} ranks on {len(job['hosts'])} hosts, {job['steps']} steps in {job['seconds']:.0f} s."
    return what + end + missing


def _shown(finding: Finding) -> Group:
    title = Text.assemble(
        "\n", (f"{finding.severity}", _STYLES[finding.severity]), f"  {finding.what}  ",
        (f"[{finding.rule}, {finding.where}; about {100 * finding.lost:.0f} % of the time]", "dim"),
    )  # fmt: skip
    return Group(title, Padding(Text(f"{finding.evidence}\n{finding.advice}"), (0, 0, 0, 6)))

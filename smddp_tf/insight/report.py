"""A diagnosis as text; report.json; and report.html, which holds all that it shows."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from smddp_tf.insight.rules.hosts import usage
from smddp_tf.monitor.lines import opened

if TYPE_CHECKING:
    from smddp_tf.insight.diagnosis import Diagnosis
    from smddp_tf.insight.finding import Finding

_CODE = re.compile("`([^`]+)`")
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
    for status in ("fired", "quiet", "not seen here"):
        named = [(each.rule.name, each.reason) for each in diagnosis.results if each.status == status]
        shown = [f"{name} ({reason})" if reason else name for name, reason in named]
        console.print(Text(f"\n{status}: {', '.join(shown) or 'no rule'}"))


def heading(diagnosis: Diagnosis) -> str:
    """Summarizes the recording in a line."""
    job, missing = diagnosis.job, ", ".join(map(str, diagnosis.job["without_recording"]))
    hosts = "one host" if len(job["hosts"]) == 1 else f"{len(job['hosts'])} hosts"
    line = f"{job['ranks']} ranks on {hosts}, {job['steps']} steps in {job['seconds']:.0f} s."
    line += "" if job["ended"] else " The recording has no end."
    line += "" if job["steps"] else " Steps of a loop of your own are recorded inside of `hvd.monitor.step`."
    return line + (f" There is no recording of ranks {missing}." if missing else "")


def _shown(finding: Finding) -> Group:
    title = Text.assemble("\n", (f"{finding.severity.upper()}: ", _STYLES[finding.severity]), finding.what)
    where = f"{finding.rule}, {finding.where}, {finding.cost}"
    return Group(title, Padding(Text(f"{where}\n{finding.evidence}\n{finding.advice}"), (0, 0, 0, 4), expand=False))


def write_json(diagnosis: Diagnosis, folder: Path) -> Path:
    """Writes and returns `report.json`."""
    return _write(folder / "report.json", diagnosis.to_json())


def write_html(diagnosis: Diagnosis, folder: Path) -> Path:
    """Writes and returns `report.html`.

    Raises:
        ImportError: matplotlib or jinja2 is missing. Says how to install them.
    """
    try:
        import jinja2
        import markupsafe

        from smddp_tf.insight.pictures import pictures
    except ModuleNotFoundError as error:
        raise ImportError(f"report.html needs {error.name}: pip install 'smddp-tf[insight]'") from error
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["with_code"] = lambda text: markupsafe.Markup(_CODE.sub(r"<code>\1</code>", escape(text)))
    template = environment.from_string(Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8"))
    of_hosts = {"pictures": pictures(diagnosis.recording), "hosts": usage(diagnosis.recording)}
    return _write(folder / "report.html", template.render(heading=heading(diagnosis), diagnosis=diagnosis, **of_hosts))


def _write(path: Path, text: str) -> Path:
    with opened(path, "w") as file:
        file.write(text)
    return path

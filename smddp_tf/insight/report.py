"""report.json, and report.html, which holds all that it shows."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from smddp_tf.insight.diagnosis import Diagnosis
from smddp_tf.insight.rules.hosts import usage
from smddp_tf.insight.text import heading
from smddp_tf.monitor.lines import opened

_CODE = re.compile("`([^`]+)`")


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
    page = template.render(
        heading=heading(diagnosis),
        diagnosis=diagnosis,
        pictures=pictures(diagnosis.recording),
        hosts=usage(diagnosis.recording),
    )
    return _write(folder / "report.html", page)


def _write(path: Path, text: str) -> Path:
    with opened(path, "w") as file:
        file.write(text)
    return path

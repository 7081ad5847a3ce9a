"""`smddprun --diagnose DIR`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from smddp_tf.insight import NoRecording, diagnose
from smddp_tf.insight.report import write_html, write_json
from smddp_tf.insight.text import show
from smddp_tf.run.errors import LaunchError

EXIT_FIRED = 3


def diagnose_folder(folder: str, strict: bool) -> int:
    """Prints the findings, writes `report.json` and `report.html` into the folder, and returns the exit code.

    Args:
        folder: with the recording.
        strict: the exit code is 3 where a rule has fired.
    """
    try:
        diagnosis = diagnose(folder)
    except NoRecording as error:
        raise LaunchError(str(error)) from error
    show(diagnosis, Console(soft_wrap=False))
    try:
        for write in (write_json, write_html):
            click.echo(f"Written: {write(diagnosis, Path(folder))}")
    except (ImportError, OSError) as error:
        click.echo(f"smddprun: {error}", err=True)
    return EXIT_FIRED if strict and diagnosis.findings else 0

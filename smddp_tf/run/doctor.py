"""`smddprun --doctor`: looks around on a job's ranks, and at what a script for Horovod does under Keras 3."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from smddp_tf.checks.doctor import Finding, doctor
from smddp_tf.checks.horovod_script import STEPS, difference
from smddp_tf.run.errors import LaunchError
from smddp_tf.run.function import payload_of, results_of
from smddp_tf.run.hosts import Host
from smddp_tf.run.settings import Settings

HERE = (Host("localhost", 2),), 2  # hosts and ranks, where nothing says how many
_NOT_HOROVOD = (
    "(Horovod itself was not run; it cannot be built for TensorFlow 2.19 and newer. This was smddp_tf in its place, "
    "with optimizers that do not reduce: under Keras 3 those of Horovod 0.28.1 do not.)"
)


def run_doctor(settings: Settings, command: Sequence[str]) -> int:
    """Prints the findings on the ranks of `settings` and on the user's command; returns 1 where there is an error."""
    script = [*command[next((at for at, word in enumerate(command) if word.endswith(".py")), len(command)) :]]
    for_horovod = bool(script) and _imports_horovod(script[0])
    findings = list(_on_ranks(settings, doctor))
    click.echo("\n".join(map(str, findings)))
    if script and not for_horovod:
        click.echo(str(Finding("ok", "script", f"{script[0]} does not import Horovod, and was not run.")))
    elif script:
        for reduces in (False, True):
            click.echo(str(finding := _of_script(settings, script, reduces)))
            findings.append(finding)
    return int(any(finding.level == "error" for finding in findings))


def _on_ranks(settings: Settings, function: Callable[..., Any], *args: Any) -> Any:
    """Rank 0's result."""
    return results_of(settings, payload_of(function, args, {}), sys.executable)[0]


def _imports_horovod(script: str) -> bool:
    try:
        return bool(re.search(rb"^\s*(import|from)\s+horovod\b", Path(script).read_bytes(), re.MULTILINE))
    except OSError as error:
        raise LaunchError(f"--doctor cannot read the script {script!r}: {error.strerror}.") from None


def _of_script(settings: Settings, script: list[str], reduces: bool) -> Finding:
    what = "with smddp_tf" if reduces else "with Horovod"
    try:
        found = _on_ranks(settings, difference, script, reduces)
    except Exception as error:
        return Finding("error", what, f"{script[0]} failed: {type(error).__name__}: {error}")
    if found is None:
        return Finding("warning", what, f"{script[0]} made fewer than {STEPS} steps of `fit`: nothing to compare.")
    weights = f"weights of the {settings.ranks} ranks differ by up to {found:.2g} after {STEPS} steps."
    if reduces or not found:
        return Finding("error" if found else "ok", what, weights)
    advice = f"smddprun --as horovod {script[0]} trains one model."
    unsynchronised = f"your script trains unsynchronised with Horovod today: {weights} {_NOT_HOROVOD}"
    return Finding("error", what, unsynchronised, advice)

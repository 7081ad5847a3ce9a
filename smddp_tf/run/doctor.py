"""`smddprun --doctor`: looks around on the job's ranks, and at what a script for Horovod does under Keras 3."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from smddp_tf.checks.doctor import Finding
from smddp_tf.run.errors import LaunchError
from smddp_tf.run.function import payload_of, results_of
from smddp_tf.run.hosts import Host
from smddp_tf.run.settings import Settings

HERE = (Host("localhost", 2),), 2  # hosts and ranks, where nothing says how many
_NOT_HOROVOD = (
    "(Horovod itself was not run; it cannot be built for TensorFlow 2.19 and newer. This was smddp_tf in its place, with "
    "optimizers that do not reduce: under Keras 3 those of Horovod 0.28.1 do not.)"
)


def run_doctor(settings: Settings, command: Sequence[str]) -> int:
    """Prints the findings; returns 1 when one of them is an error, else 0.

    Args:
        settings: of the job whose ranks look around.
        command: the user's, or nothing.
    """
    findings = list(results_of(settings, payload_of(_look, (), {}), sys.executable)[0])
    script = [*command[next((at for at, word in enumerate(command) if word.endswith(".py")), len(command)) :]]
    click.echo("\n".join(map(str, findings)))
    if script and not imports_horovod(Path(script[0])):
        click.echo(str(Finding("ok", "script", f"{script[0]} does not import Horovod, and was not run.")))
    elif script:
        for reduces in (False, True):
            click.echo(str(finding := _of_script(settings, script, reduces)))
            findings += [finding] if reduces else []
    return int(any(finding.level == "error" for finding in findings))


def imports_horovod(script: Path) -> bool:
    """Whether the source has such an import."""
    try:
        nodes = list(ast.walk(ast.parse(script.read_bytes(), str(script))))
    except (OSError, SyntaxError, ValueError) as error:
        raise LaunchError(f"--doctor cannot read the script {str(script)!r}: {error}.") from None
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return any(name.split(".")[0] == "horovod" for name in names)


def _look() -> Any:
    import smddp_tf as hvd
    from smddp_tf.checks.doctor import doctor

    hvd.init()
    return doctor()


def _of_script(settings: Settings, script: list[str], reduces: bool) -> Finding:
    from smddp_tf.checks.horovod_script import STEPS, difference

    what = "with smddp_tf" if reduces else "with Horovod"
    try:
        found = results_of(settings, payload_of(difference, (script, reduces), {}), sys.executable)[0]
    except Exception as error:
        return Finding("error", what, f"{script[0]} failed: {type(error).__name__}: {error}")
    if found is None:
        return Finding("warning", what, f"{script[0]} made fewer than {STEPS} steps of `fit`: nothing to compare.")
    weights = f"weights of the {settings.ranks} ranks differ by up to {found:.2g} after {STEPS} steps"
    if reduces or not found:
        return Finding("error" if found else "ok", what, f"{weights}.")
    return Finding(
        "error",
        what,
        f"your script trains unsynchronised with Horovod today: {weights}. {_NOT_HOROVOD}",
        f"smddprun --as horovod {script[0]} trains one model.",
    )

"""Runs a command without a launch: in this process, which is one rank, or the only one."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from smddp_tf import aliases
from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.placement import find_placement
from smddp_tf.lifecycle.rank_variables import variables_of
from smddp_tf.link.channel import ADDRESS


def run_in_process(command: Sequence[str], families: Sequence[str] = ()) -> NoReturn:
    """Runs the command: a Python script runs in this process, any other program replaces the process.

    Args:
        command: program or script with arguments.
        families: what `aliases.install` is to be called with.

    Raises:
        LaunchError: there is no such program.
    """
    placement = find_placement(os.environ)
    if placement:
        os.environ.update(variables_of(placement))
    os.environ.update(alias_variables(families))
    if placement and os.environ.get(ADDRESS):  # a job of smddprun whose line names smddprun as the inner wrapper
        from smddp_tf.run.rank.supervisor import supervise

        sys.exit(supervise(as_program(command)))
    if is_script(command):
        _run_script(command, families)
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        raise LaunchError(f"{command[0]!r} cannot be started: {error.strerror}.") from None


def is_script(command: Sequence[str]) -> bool:
    """True for `script.py arguments...`, which needs no `python` before it."""
    name = command[0]
    return name.endswith(".py") and (os.path.sep in name or os.path.exists(name) or not shutil.which(name))


def as_program(command: Sequence[str]) -> list[str]:
    """The command with this Python before a script."""
    return [sys.executable, *command] if is_script(command) else list(command)


def alias_variables(families: Sequence[str]) -> Mapping[str, str]:
    """The variables with which a Python that is started does `aliases.install` of each."""
    variables: dict[str, str] = {}
    for family in families:
        variables = aliases.environment(family, {**os.environ, **variables})
    return variables


def _run_script(command: Sequence[str], families: Sequence[str]) -> NoReturn:
    script = Path(command[0])
    if not script.is_file():
        raise LaunchError(f"There is no script {command[0]!r} in {os.getcwd()}.")
    for family in families:
        aliases.install(family)
    sys.argv = list(command)
    # `python script.py` puts the script's folder first; what -m put there, the current folder, goes.
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")
    sys.exit(0)

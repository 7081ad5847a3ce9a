"""What can be said of a job before mpirun is started: what cannot work, and what has no effect."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import psutil

from smddp_tf.run.hosts import is_this_host
from smddp_tf.run.network import Interface
from smddp_tf.run.settings import Settings

_FOLDER_WORDS = ("wd", "wdir", "set-cwd-to-session-dir")  # mpirun's, for the ranks' working directory
_RANK_BYTES = 400 << 20  # of a rank that has loaded TensorFlow, without model and data


class Ranks(click.ParamType):
    """The number of ranks, as -np has it."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(value)
        except ValueError:
            found = str(value).lstrip("p=")  # of -np2, which click takes for -n p2
            example = found if found.isdigit() else "4"
            self.fail(f"{value!r} is not a valid integer. Expected a number after a blank: -np {example}.", param, ctx)


def missing_program(command: Sequence[str], settings: Settings, environment: Mapping[str, str]) -> str:
    """What to say where no rank can start the command; "" where the ranks may find it: other hosts have other files."""
    moved = any(word.lstrip("-") in _FOLDER_WORDS for word in settings.mpi_args)
    if moved or settings.remote_hosts:
        return ""
    program, paths = command[0], {**environment, **settings.variables}.get("PATH", os.defpath)
    if not shutil.which(program, path=paths):
        why = "Permission denied" if os.path.isfile(program) else "No such file or directory"
        where = "" if os.path.sep in program else f" in the folders of PATH ({paths})"
        return f"{program!r} cannot be started: {why}. Expected a program{where} or a script. No rank was started."
    script = command[1] if Path(program).name.startswith("python") and len(command) > 1 else "-"
    if not (script.startswith("-") or os.path.exists(script)):
        return f"There is no script {script!r} in {os.getcwd()}, where the ranks run. No rank was started."
    return ""


def notes(settings: Settings, interfaces: Sequence[Interface]) -> Iterator[str]:
    """What the ranks of this host will not get."""
    here = {name for one in interfaces for name in (one.name, one.address)}
    for wanted in settings.network_interfaces:
        if wanted not in here and not any(_holds(wanted, one) for one in interfaces):
            found = ", ".join(f"{one.name} ({one.network})" for one in interfaces)
            advice = "give one of them" if settings.remote_hosts else "leave it out: all ranks are on one host"
            yield (
                f"--network-interfaces {wanted}: expected an interface or a network of this host, which has {found}. "
                f"It has no effect here; {advice}."
            )
    ranks, memory = sum(map(is_this_host, settings.hosts_of_ranks)), psutil.virtual_memory()
    if ranks * _RANK_BYTES > memory.available:
        yield (
            f"{ranks} ranks on this host need about {ranks * _RANK_BYTES >> 30} GiB of memory once each has loaded "
            f"TensorFlow, and {memory.available >> 30} of {memory.total >> 30} GiB are free (on "
            f"{len(os.sched_getaffinity(0))} cores): ranks may be killed. Start fewer (-np), or use more hosts (-H)."
        )


def _holds(network: str, interface: Interface) -> bool:
    try:
        return ipaddress.IPv4Address(interface.address) in ipaddress.IPv4Network(network, strict=False)
    except ValueError:
        return False

"""Checks of a job before mpirun is started: settings that cannot work, or that have no effect."""

from __future__ import annotations

import difflib
import errno
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.versions import shown
from smddp_tf.run.hosts.hosts import is_this_host, shortened
from smddp_tf.run.hosts.network import Interface
from smddp_tf.run.launch.settings import Settings

_FOLDER_WORDS = ("wd", "wdir", "set-cwd-to-session-dir")  # mpirun's, for the ranks' working directory
_RANK_BYTES = 400 << 20  # of a rank that has loaded TensorFlow, without model and data


def missing_program(command: Sequence[str], settings: Settings, environment: Mapping[str, str]) -> str:
    """Returns the error text where no rank can start the command; "" where a rank on another host may."""
    if settings.remote_hosts or any(word.lstrip("-") in _FOLDER_WORDS for word in settings.mpi_args):
        return ""
    program, paths = command[0], {**environment, **settings.variables}.get("PATH", os.defpath)
    if not shutil.which(program, path=paths):
        why = os.strerror(errno.EACCES if os.path.isfile(program) else errno.ENOENT)
        programs = {path.name for folder in paths.split(os.pathsep) for path in Path(folder).glob("*")}
        alike = difflib.get_close_matches(program, programs, 1)
        meant = f"Did you mean {alike[0]!r}? " if alike else ""
        return (
            f"{program!r} cannot be started: {why}. {meant}Expected a script or a program; PATH is {paths}. "
            "No rank began."
        )
    script = command[1] if Path(program).name.startswith("python") and len(command) > 1 else "-"
    if script.startswith("-") or os.path.exists(script):
        return ""
    return f"There is no script {script!r} in {os.getcwd()}, where the ranks run. No rank began."


def started(settings: Settings, mpi: bool) -> str:
    """Where the ranks are started, and the versions of the launcher's own environment, which mostly is theirs."""
    hosts = list(dict.fromkeys(socket.gethostname() if is_this_host(h) else h for h in settings.hosts_of_ranks))
    versions = shown()
    library = versions["mpi"] if mpi else "without MPI"
    here = f"TensorFlow {versions['tensorflow']}, Keras {versions['keras']}, {library}"
    return f"{settings.ranks} rank{'s' * (settings.ranks > 1)} on {shortened(hosts, 4)}. In this Python: {here}."


def notes(settings: Settings, interfaces: Sequence[Interface]) -> Iterator[str]:
    """Yields a text for each setting that the ranks of this host may suffer from.

    Raises:
        LaunchError: a network interface does not exist.
    """
    here = {one.name: str(one.network) for one in interfaces}
    for wanted in settings.network_interfaces:
        if not (wanted in here or "/" in wanted):
            raise LaunchError(
                f"--network-interfaces {wanted}: expected an interface of this host, or a network. There are: "
                f"{', '.join(f'{name} ({network})' for name, network in here.items())}."
            )
    ranks, memory = sum(map(is_this_host, settings.hosts_of_ranks)), psutil.virtual_memory()
    if ranks * _RANK_BYTES > memory.available:
        yield (
            f"{ranks} ranks on this host need {ranks * _RANK_BYTES >> 30} GiB of memory for TensorFlow alone, and "
            f"{memory.available >> 30} GiB are free: some may be killed. Start fewer (-np), or use more hosts (-H)."
        )

"""The settings of a job, from the command line, Python or Slurm."""

from __future__ import annotations

import math
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from smddp_tf import urls
from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts import slurm
from smddp_tf.run.hosts.discovery import Discover
from smddp_tf.run.hosts.hosts import Host, hosts_of_ranks, is_this_host, parse_host_file, parse_hosts, total_slots

DEFAULT_START_TIMEOUT = 300.0  # the engine's default as well
# Ranks print into a pipe, for which Python would buffer full pages.
_UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


class Growth(NamedTuple):
    """How many ranks a job may have that goes on without those it loses.

    Attributes:
        least: with fewer it ends.
        most: how many it grows to; None: as many as there are slots.
        discover: names the hosts that there are; None: they are those of the start.
        seconds: how long it waits for hosts when it has too few ranks.
        cool_down: seconds until a slot in which a rank was lost is used again; else when its host has been away.
    """

    least: int
    most: int | None = None
    discover: Discover | None = None
    seconds: float = 600.0
    cool_down: float = math.inf


@dataclass(frozen=True)
class Settings:
    """A job.

    Attributes:
        ranks: how many.
        hosts: where, with slots.
        variables: environment of the ranks beyond what they inherit; these win.
        network_interfaces: names or networks (10.0.0.0/24); empty: chosen.
        mpi_args: more words for mpirun. They override our defaults.
        binding_args: mpirun's words on binding; empty: none.
        fabric: what carries messages between hosts, one of fabric.FABRICS.
        ssh: options of ssh, for hosts that it reaches in a special way.
        start_timeout: seconds within which all ranks must have been started.
        output_filename: folder for rank.N/stdout and stderr, or "".
        prefix_timestamp: lines of ranks carry the time.
        verbose: 1 prints mpirun's line, 2 also makes mpirun talk.
        reports: a line says where the ranks are started, and one that they have ended.
        mpirun: the launcher to use instead of the one that is found.
        mpi: whether MPI's launcher starts the ranks, or this package's own by ssh; None: MPI's, if there is one.
    """

    ranks: int
    hosts: tuple[Host, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    network_interfaces: tuple[str, ...] = ()
    mpi_args: tuple[str, ...] = ()
    binding_args: tuple[str, ...] = ()
    fabric: str = "auto"
    ssh: tuple[str, ...] = ()
    start_timeout: float = DEFAULT_START_TIMEOUT
    output_filename: str = ""
    prefix_timestamp: bool = False
    verbose: int = 0
    reports: bool = False
    mpirun: str | None = None
    mpi: bool | None = None

    @property
    def hosts_of_ranks(self) -> list[str]:
        return hosts_of_ranks(self.hosts, self.ranks)

    @property
    def remote_hosts(self) -> list[str]:
        return [host.name for host in self.hosts if not is_this_host(host.name)]


def hosts_and_ranks(options: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[tuple[Host, ...], int] | None:
    """Completes what was given: hosts from Slurm's allocation or this machine, as many ranks as slots.

    Args:
        options: with the names of smddprun's: `num_proc`, `hosts`, `hostfile` and `slots_per_host`.
        environment: for Slurm's allocation.

    Returns:
        The hosts that take part and the number of ranks; None when nothing says how many ranks there should be.

    Raises:
        LaunchError: they contradict each other.
    """
    ranks, hosts, host_file = options["num_proc"], options["hosts"], options["hostfile"]
    slots = options["slots_per_host"] or 1
    if hosts and host_file:
        raise LaunchError("Give the hosts once: --hosts or --hostfile, not both.")
    if ranks is not None and ranks < 1:
        raise LaunchError(f"The number of ranks must be 1 or more. Received: -np {ranks}.")
    if hosts:
        found = parse_hosts(hosts if isinstance(hosts, str) else ",".join(hosts), slots)
    elif host_file:
        found = parse_host_file(host_file, slots)
    elif slurm.inside_allocation(environment):
        found = slurm.allocated_hosts(environment)
    elif ranks is None:
        return None
    else:
        found = [Host("localhost", ranks)]
    wanted = ranks if ranks is not None else total_slots(found)
    used = set(hosts_of_ranks(found, wanted))
    return tuple(host for host in found if host.name in used), wanted


def settings_of(options: Mapping[str, Any], hosts: tuple[Host, ...], ranks: int, **more: Any) -> Settings:
    """The job of options with the names of smddprun's; those that are missing, or None, keep their defaults.

    Args:
        options: by name; those of other things do not count.
        hosts, ranks: as `hosts_and_ranks` returns them.
        more: other fields. The ranks get `variables` besides those of every job.

    Raises:
        LaunchError: the start timeout is none.
    """
    given = {name: convert(options[name]) for name, convert in _CONVERTED.items() if options.get(name) is not None}
    more["variables"] = {**_UNBUFFERED, **more.get("variables", {})}
    given["mpi"] = False if options.get("use_gloo") else options["use_mpi"]
    given["start_timeout"] = start_timeout_of(options["start_timeout"], os.environ)
    port, key = options["ssh_port"], options["ssh_identity_file"]
    ssh = (*(("-p", str(port)) if port else ()), *(("-i", absolute(key)) if key else ()))
    return Settings(ranks, hosts, ssh=ssh, **given, **more)


def check_elastic(
    ranks: int | None, least: int | None, most: int | None, discovery_script: str | None, can_restart: bool = True
) -> None:  # fmt: skip
    """Raises LaunchError where elastic flags ask a job of MPI to grow, or for a number of ranks that is none.

    Args:
        ranks, least, most, discovery_script: as given.
        can_restart: the job may start again with fewer ranks, so that `least` may be below `ranks`.
    """
    given = {"--host-discovery-script": discovery_script}
    if least is not None and least != ranks and not (can_restart and least >= 1 and (ranks is None or least < ranks)):
        given["--min-np"] = str(least)
    if most is not None and most != ranks:
        given["--max-np"] = str(most)
    asked = [f"{flag} {value}" for flag, value in given.items() if value]
    if asked:
        raise LaunchError(
            "Jobs grow, or discover hosts, without MPI only: smddprun --no-mpi --host-discovery-script. Received: "
            f"{', '.join(asked)} with -np {ranks}. With MPI give the largest number of ranks (-np N -H host:slots); "
            "smddprun --elastic --min-np M restarts the job after a failure, with M ranks at least."
        )


def words(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """The words of a shell's line, or of a list of such lines."""
    return tuple(shlex.split(text if isinstance(text, str) else " ".join(text or ())))


def start_timeout_of(given: float | None, environment: Mapping[str, str]) -> float:
    """Returns the start timeout in seconds: `given`, SMDDP_START_TIMEOUT, HOROVOD_START_TIMEOUT, or the default."""
    named = environment.get("SMDDP_START_TIMEOUT") or environment.get("HOROVOD_START_TIMEOUT")
    text = given if given is not None else named or DEFAULT_START_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise LaunchError(f"The start timeout must be a positive number of seconds. Received: {text!r}.")
    return seconds


def absolute(path: str | None) -> str:
    """The path, absolute; "" when there is none."""
    return os.path.abspath(os.path.expanduser(path)) if path else ""


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(given.split(",") if isinstance(given, str) else given)


_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "network_interfaces": _names, "mpi_args": words, "binding_args": words, "output_filename": absolute,
    "prefix_timestamp": bool, "verbose": int, "mpirun": str,
}  # fmt: skip


def commits_at(folder: str | None) -> str:
    """Where commits go: an absolute path, a URL as it is; "" where nothing was given.

    Raises:
        LaunchError: the ranks could not reach the URL either, or could not write there.
    """
    try:
        if folder and urls.is_url(folder):
            urls.file_system(folder)
        elif folder:
            os.makedirs(urls.absolute(folder), 0o700, exist_ok=True)
            tempfile.TemporaryFile(dir=urls.absolute(folder)).close()
        return urls.absolute(folder) if folder else ""
    except (ImportError, ValueError) as error:
        raise LaunchError(f"--commit-dir: {error}") from None
    except OSError as error:
        raise LaunchError(
            f"--commit-dir {folder}: expected a folder that can be made, and written to, on every host. Here: "
            f"{error.strerror}."
        ) from None

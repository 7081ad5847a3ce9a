"""Assembles a job and runs it: line, channel, output, and the last output of the rank that failed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.rank_variables import RENDEZVOUS, without_rank_variables
from smddp_tf.link.channel import ADDRESS, KEY
from smddp_tf.link.server import ControlServer
from smddp_tf.run.hosts.hosts import is_this_host
from smddp_tf.run.hosts.network import Choice, check_hosts, choose, local_interfaces, resolve
from smddp_tf.run.launch.before_start import started
from smddp_tf.run.launch.direct_command import direct_command, line_on_host, meeting_variables
from smddp_tf.run.launch.fabric import check_fabric
from smddp_tf.run.launch.growing_job import GrowingJob
from smddp_tf.run.launch.job import Job, Outcome, Surroundings
from smddp_tf.run.launch.mpi import Mpi, NoMpirun, find_mpi, with_home
from smddp_tf.run.launch.mpirun_command import MpirunCommand, build_command, names_agent
from smddp_tf.run.launch.settings import Growth, Settings
from smddp_tf.run.output.console import say
from smddp_tf.run.output.lines import starts_traceback
from smddp_tf.run.output.output import Output
from smddp_tf.run.rank.processes import isolated


def launcher_of(settings: Settings) -> Mpi | None:
    """MPI's launcher; None for a job without MPI, which was asked for or has to be because there is no mpirun.

    Raises:
        LaunchError: there is none that fits, or what is asked for needs one.
    """
    given = {
        "--mpirun": settings.mpirun, "--mpi-args": settings.mpi_args, "--binding-args": settings.binding_args,
        f"--fabric {settings.fabric}": settings.fabric not in ("auto", "tcp"),
    }  # fmt: skip
    for_mpi = [name for name, value in given.items() if value]
    if settings.mpi is False:
        if for_mpi:
            raise LaunchError(f"--no-mpi and {', '.join(for_mpi)} contradict each other: leave out one of them.")
        return None
    try:
        return find_mpi(settings.mpirun)
    except NoMpirun:
        if settings.mpi or for_mpi:
            raise
        return None


def line_of(settings: Settings, environment: Mapping[str, str]) -> tuple[MpirunCommand, Choice]:
    """The line that starts the ranks of a job, mpirun's or our own, and the network it uses."""
    remote = settings.remote_hosts
    choice = choose(local_interfaces(), resolve(remote) if remote else None, settings.network_interfaces)
    if (mpi := launcher_of(settings)) is None:
        return direct_command(settings, environment), choice
    check_fabric(settings.fabric, mpi)
    return build_command(settings, mpi, choice, environment, len(os.sched_getaffinity(0)), os.geteuid() == 0), choice


def launch(settings: Settings, command: Sequence[str], payload: bytes = b"", growth: Growth | None = None) -> Outcome:
    """Runs `command` on the job's ranks and waits for them; what they print appears here.

    Args:
        settings: the job.
        command: of each rank.
        payload: the reply to a process that requests its task.
        growth: how many ranks there may be. Without MPI the job then goes on without those that it loses.

    Raises:
        LaunchError: the job cannot be started.
    """
    environment = without_rank_variables(os.environ)
    if not names_agent(settings.mpi_args, environment):
        check_hosts(settings.remote_hosts)
    line, choice = line_of(settings, environment)
    if settings.reports:
        say(started(settings, not line.is_direct))
    if settings.verbose:
        say(line.shown(command))
    begun = time.monotonic()
    of_rank = [*isolated("smddp_tf.run.rank.supervisor", sys.executable, bare=True), *command]
    growth = growth if line.is_direct else None
    local_only = not settings.remote_hosts and not (growth and growth.discover)
    addresses = ["127.0.0.1"] if local_only else _addresses(choice)
    rendezvous = _rendezvous(settings.hosts_of_ranks[0], addresses[0])
    greets = {**environment, **settings.variables}.get("TF_CPP_MIN_LOG_LEVEL", "") == "0"  # TensorFlow, when imported
    new = [name for name in rendezvous if name not in environment and name not in line.environment]
    with contextlib.closing(ControlServer(addresses, settings.ranks)) as server, Output(
        settings.ranks, settings.output_filename, settings.prefix_timestamp, greets
    ) as output:  # fmt: skip
        # To other hosts by name: all users of this host can read a command line.
        names = () if local_only or line.forwards_all else (ADDRESS, KEY, *new)
        words = [*line.words, *(word for name in names for word in ("-x", name)), *of_rank]
        meeting = _rendezvous(settings.hosts_of_ranks[0], addresses[0])  # at a port of its own
        own = meeting_variables(*meeting.values()) if line.is_direct else {}
        variables = with_home({**rendezvous, **environment, **line.environment, **own})
        around = Surroundings(variables, settings.hosts_of_ranks, server, output, settings.start_timeout, payload)
        outcome = (
            GrowingJob(lambda *place: [*line_on_host(settings, environment, *place), *of_rank], growth, around)
            if growth
            else Job(words, around)
        ).run()
        if outcome.failed_rank is not None:
            outcome.report = _report(outcome, output)
    if outcome.report:  # after all output of the ranks, which the end of `with` has shown
        say(outcome.report)
    if outcome.interrupted:
        say(f"{signal.Signals(outcome.code - 128).name} has ended the job of {settings.ranks} ranks.")
    if outcome.apart and not outcome.code:
        say(
            f"none of the {settings.ranks} ranks called hvd.init(): each ran by itself, and what they trained are "
            f"{settings.ranks} separate models. A script for smddp_tf calls hvd.init() or set_distribution. For an "
            "unchanged script with model.fit: smddprun --keras-distribution. See docs/troubleshooting.md."
        )
    if settings.reports and not outcome.code:
        have = "ranks have" if settings.ranks > 1 else "rank has"
        say(f"{settings.ranks} {have} ended after {time.monotonic() - begun:.0f} s{outcome.end.speed}.")
    return outcome


def _addresses(choice: Choice) -> list[str]:
    """This host's addresses for the others, the chosen network's first."""
    found = [one.address for one in local_interfaces() if not one.is_loopback and not one.is_virtual]
    return list(dict.fromkeys([*([choice.address] if choice.address else []), *found, "127.0.0.1"]))


def _rendezvous(first: str, here: str) -> dict[str, str]:
    """For what the ranks start among themselves: the host of rank 0 and a port that was free on this host."""
    with socket.socket() as free:
        free.bind(("", 0))
        return dict(zip(RENDEZVOUS, (here if is_this_host(first) else first, str(free.getsockname()[1]))))


def _report(outcome: Outcome, output: Output) -> str:
    """Which rank caused the end of the job, why, and its last output."""
    end, lines = outcome.end, output.tail_of(outcome.failed_rank or 0)
    how = f"was killed by signal {-end.code}" if end.code < 0 else f"ended with exit code {end.code}"
    how = f"rank {outcome.failed_rank} on {outcome.failed_host} {how}"
    if not end.is_cause:
        return f"{how}; it says that it was not the cause: {end.because}"
    last = "Its traceback:" if lines and starts_traceback(lines[0]) else "Its last lines:"
    how += f", and the job with it{f': {end.raised}' if end.raised else ''}"
    if end.code == -signal.SIGKILL:
        how += " (out of memory? `dmesg` on that host and memory.events of the container's cgroup say so)"
    return "\n".join([f"{how}. {last if lines else 'It printed nothing.'}", *lines])

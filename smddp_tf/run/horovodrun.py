"""`horovodrun`, which the distribution in packaging/horovod installs: `smddprun` for lines written for Horovod."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from typing import Any

import click

from smddp_tf.aliases.table import HOROVOD_VERSION
from smddp_tf.exceptions import LaunchError
from smddp_tf.run.cli import dispatch, launcher, run_program
from smddp_tf.run.cli.check_build import build_report, version
from smddp_tf.run.hosts.hosts import Host, parse_hosts, total_slots

_ELASTIC_TIMEOUT = 600.0  # Horovod's default


@launcher
def horovodrun(**options: Any) -> None:
    """Runs COMMAND on several ranks: `horovodrun -np 4 python train.py`. The launcher is smddp_tf's `smddprun`.

    What Horovod's launcher can do beyond that, and a job can run without, is ignored with a line on standard error.
    """
    if options["show_version"]:
        click.echo(f"{HOROVOD_VERSION}+smddp")
    elif options["check_build"]:
        click.echo(build_report(f"Horovod v{HOROVOD_VERSION}+smddp:", names_only=True))
        click.echo(f"\nHorovod is replaced by smddp_tf {version()}; smddprun --check-build shows the versions.")
    else:
        dispatch(options, _adapted)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `horovodrun` and ends the process with the exit code of the job.

    Args:
        arguments: the command line without the program's name. Defaults to that of the process.

    Raises:
        SystemExit: always.
    """
    run_program(horovodrun, arguments)


def _adapted(options: dict[str, Any]) -> dict[str, Any]:
    """The options without those that smddprun refuses and the job can run without."""
    changes: dict[str, Any] = {"max_np": None, "host_discovery_script": None}
    ranks, most, script = options["num_proc"], options["max_np"], options["host_discovery_script"]
    if most is not None and most < (ranks or 1):
        raise LaunchError(f"--max-np must not be less than -np. Received: --max-np {most} with -np {ranks}.")
    if most is not None and most != ranks:
        _note(f"--max-np {most} is ignored: the job does not get more ranks while it runs.")
    if script:
        _note("--host-discovery-script is used for the start; the job gets no other hosts while it runs.")
        seconds = options["elastic_timeout"] or _ELASTIC_TIMEOUT
        least = ranks or options["min_np"] or 1
        hosts = discovered_hosts(script, options["slots_per_host"] or 1, least, seconds)
        slots = total_slots(hosts)
        changes |= {"hosts": ",".join(map(str, hosts)), "num_proc": ranks or min(slots, most or slots)}
    for option in ("blacklist_cooldown_range", *(() if script else ("elastic_timeout",))):
        if options[option] is not None:
            _note(f"--{option.replace('_', '-')} is ignored: hosts are not looked for while the job runs.")
    return {**options, **changes}


def _note(text: str) -> None:
    click.echo(f"horovodrun: {text}", err=True)


_PAUSE_SECONDS = 1.0


def discovered_hosts(script: str, default_slots: int, wanted: int, seconds: float) -> list[Host]:
    """Runs the shell command `script` until the hosts that it prints have `wanted` slots, for `seconds` at most.

    Raises:
        LaunchError: the script failed or did not end, or its hosts have too few slots.
    """
    give_up_at = time.monotonic() + seconds
    while True:
        lines = _output(script, max(give_up_at - time.monotonic(), 1.0)).split()
        hosts = parse_hosts(",".join(lines), default_slots) if lines else []
        if hosts and total_slots(hosts) >= wanted:
            return hosts
        if time.monotonic() + _PAUSE_SECONDS > give_up_at:
            raise LaunchError(
                f"Expected {wanted} slots from --host-discovery-script {script} within {seconds:g} s "
                f"(--elastic-timeout). Received: {', '.join(map(str, hosts)) or 'no host'}."
            )
        time.sleep(_PAUSE_SECONDS)


def _output(script: str, seconds: float) -> str:
    try:
        done = subprocess.run(script, shell=True, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise LaunchError(f"--host-discovery-script {script} did not end within {seconds:g} s.") from None
    if done.returncode:
        raise LaunchError(
            f"--host-discovery-script {script} ended with exit code {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout

"""`horovodrun`, which the distribution in packaging/horovod installs: `smddprun` for lines written for Horovod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from smddp_tf.aliases.table import HOROVOD_VERSION
from smddp_tf.exceptions import LaunchError
from smddp_tf.run.cli import dispatch, launcher, run_program
from smddp_tf.run.cli.check_build import build_report, version
from smddp_tf.run.launch.growth import grows, with_discovered_hosts


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
    ranks, most, script = options["num_proc"], options["max_np"], options["host_discovery_script"]
    if most is not None and most < (ranks or 1):
        raise LaunchError(f"--max-np must not be less than -np. Received: --max-np {most} with -np {ranks}.")
    if grows(options):
        return options
    if most is not None and most != ranks:
        _note(f"--max-np {most} is ignored: the job does not get more ranks while it runs.")
    if script:
        _note(
            "--host-discovery-script is used for the start; the job gets no other hosts while it runs. With --gloo "
            "(ranks without MPI) it would."
        )
    for option in ("blacklist_cooldown_range", *(() if script else ("elastic_timeout",))):
        if options[option] is not None:
            _note(f"--{option.replace('_', '-')} is ignored: hosts are not looked for while the job runs.")
    return {**with_discovered_hosts(options), "max_np": None, "host_discovery_script": None}


def _note(text: str) -> None:
    click.echo(f"horovodrun: {text}", err=True)

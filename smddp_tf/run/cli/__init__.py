"""`smddprun`, the command."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from smddp_tf.aliases import KERAS_DISTRIBUTION
from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.placement import find_placement
from smddp_tf.lifecycle.rank_variables import without_rank_variables
from smddp_tf.run.cli.check_build import build_report, version
from smddp_tf.run.cli.options import OPTIONS, GroupedCommand, notes_for, read_config, variables_of_knobs
from smddp_tf.run.hosts.hosts import Host
from smddp_tf.run.launch import sagemaker
from smddp_tf.run.launch.function import payload_of, results_of
from smddp_tf.run.launch.growth import grows, growth_of, with_discovered_hosts
from smddp_tf.run.launch.settings import Settings, check_elastic, commits_at, hosts_and_ranks, settings_of
from smddp_tf.run.output.console import say
from smddp_tf.run.rank.in_process import alias_variables, as_program, run_in_process

EXIT_NO_JOB = 1
_EXIT_FIRED = 3
_EXIT_NO_PROGRAM = 127  # a shell's
_TWO_HERE = (Host("localhost", 2),), 2  # hosts and ranks for `--doctor`, where nothing says how many


def launcher(function: Callable[..., None]) -> click.Command:
    """Makes a command of a function that takes the options and COMMAND; its name is the program's."""
    for option in reversed([*OPTIONS, click.argument("command", nargs=-1, type=click.UNPROCESSED)]):
        function = option(function)
    settings = {"allow_interspersed_args": False, "help_option_names": ["-h", "--help"], "max_content_width": 110}
    return click.command(function.__name__, cls=GroupedCommand, context_settings=settings)(function)


def run_program(program: click.Command, arguments: Sequence[str] | None = None) -> None:
    """Runs a launcher, and ends the process with the exit code of the job."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # in place of standard files that were closed
        pass
    os.close(number)
    try:
        program.main(args=list(sys.argv[1:] if arguments is None else arguments), prog_name=program.name)
    except LaunchError as error:
        click.echo(f"{program.name}: {error}", err=True)
        sys.exit(EXIT_NO_JOB)


@launcher
def smddprun(**options: Any) -> None:
    """Runs COMMAND on several ranks: `smddprun -np 4 python train.py`.

    Without -np: on the slots of -H, or of Slurm's allocation; inside a job of mpirun or srun, and where there is none
    of these, COMMAND runs here, as one rank. COMMAND may be a Python script.
    """
    dispatch(options)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `smddprun` and ends the process with the exit code of the job.

    Args:
        arguments: the command line without the program's name. Defaults to that of the process.

    Raises:
        SystemExit: always.
    """
    run_program(smddprun, arguments)


def dispatch(options: dict[str, Any], adapted: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> None:
    """Does what the options say. `adapted` changes them, the config file's among them, before they are used."""
    if options["show_version"]:
        click.echo(version())
        return
    if options["check_build"]:
        click.echo(build_report())
        return
    if options["diagnose"] is not None:
        sys.exit(_diagnose(options["diagnose"], bool(options["strict"])))
    if options["config_file"]:
        of_file = read_config(options["config_file"])
        options = {**options, **{name: value for name, value in of_file.items() if options.get(name) is None}}
    options = adapted(options)
    _refuse(options)
    options = with_discovered_hosts(options)
    command: Sequence[str] = options["command"]
    if options["module"] and command:
        command = [sys.executable, "-m", *command]
    if not command and not options["doctor"]:
        raise LaunchError("There is no command. For example: smddprun -np 2 python train.py. --help lists the options.")
    if all(options[name] is None for name in ("doctor", "num_proc", "hosts", "hostfile")):
        if find_placement(os.environ) is not None:
            os.environ.update({**sagemaker.variables_of_ranks(os.environ), **_variables(options)})
            run_in_process(command, _families(options))
        sagemaker.refuse_without_toolkit(os.environ)
    environment = without_rank_variables(os.environ)
    placed = hosts_and_ranks(options, environment)
    if options["doctor"]:
        if command:
            click.echo("--doctor does not run the command.", err=True)
        sys.exit(_doctor(_settings(options, *(placed or _TWO_HERE))))
    if placed is None:
        os.environ.update(_variables(options))
        if options["dry_run"]:
            click.echo(shlex.join(as_program(command)))
            return
        run_in_process(command, _families(options))
    sys.exit(_launch(options, _settings(options, *placed), as_program(command), environment))


def _diagnose(folder: str, strict: bool, after_job: bool = False) -> int:
    """Prints the findings, writes `report.json` and `report.html` into the folder, and returns the exit code.

    Args:
        folder: with the recording.
        strict: the exit code is 3 where a rule has fired.
        after_job: whether it follows the output of ranks: then it goes to standard error.
    """
    from rich.console import Console

    from smddp_tf.insight import NoRecording, diagnose
    from smddp_tf.insight.report import show, write_html, write_json

    try:
        diagnosis = diagnose(folder)
    except NoRecording as error:
        raise LaunchError(str(error)) from error
    show(diagnosis, Console(soft_wrap=False, stderr=after_job))
    try:
        for write_report in (write_json, write_html):
            click.echo(f"Written: {write_report(diagnosis, Path(folder))}", err=after_job)
    except (ImportError, OSError) as error:
        click.echo(f"smddprun: {error}", err=True)
    return _EXIT_FIRED if strict and diagnosis.findings else 0


def _doctor(settings: Settings) -> int:
    """Prints what the ranks of `settings` find with `hvd.doctor`; returns 1 where there is an error."""
    from smddp_tf.insight.doctor import doctor

    findings = results_of(dataclasses.replace(settings, reports=False), payload_of(doctor, (), {}), sys.executable)[0]
    click.echo("\n".join(map(str, findings)))
    return int(any(finding.level == "error" for finding in findings))


def _families(options: Mapping[str, Any]) -> list[str]:
    """Returns the names of the aliases that the flags install (`smddp_tf.aliases`)."""
    chosen = {options["alias"]: options["alias"], KERAS_DISTRIBUTION: options["keras_distribution"]}
    return [family for family, is_chosen in chosen.items() if is_chosen]


def _refuse(options: Mapping[str, Any]) -> None:
    """Refuses what a job cannot do, and names the alternative."""
    if options["strict"]:
        raise LaunchError("--strict needs a recording to look at: --diagnose DIR --strict.")
    if options.get("use_jsrun"):
        raise LaunchError(
            "LSF's jsrun is not supported: leave --jsrun out and give the hosts, -np N -H host:slots,..., for mpirun."
        )
    growing = (None, None) if grows(options) else (options["max_np"], options["host_discovery_script"])
    check_elastic(options["num_proc"], options["min_np"], *growing)


def _variables(options: Mapping[str, Any]) -> dict[str, str]:
    """The variables that the flags set in the ranks' environment."""
    variables = variables_of_knobs(options)
    if options["start_timeout"] is not None:
        variables["HOROVOD_START_TIMEOUT"] = variables["SMDDP_START_TIMEOUT"] = f"{options['start_timeout']:g}"
    for export in options["exported"]:
        name, equals, value = export.partition("=")
        if equals or name in os.environ:
            variables[name] = value if equals else os.environ[name]
        else:
            say(f"-x {name}: not set here, so no rank gets it. Set it, or write -x {name}=VALUE.")
    for note in notes_for(options):
        say(note)
    return variables


def _settings(options: Mapping[str, Any], hosts: Any, ranks: int) -> Settings:
    variables = {**alias_variables(_families(options)), **_variables(options)}
    fabric = options["fabric"] or ("tcp" if options["tcp"] else "auto")
    if options["tcp"] and fabric != "tcp":
        raise LaunchError(f"--tcp is --fabric tcp. Received besides: --fabric {fabric}. Leave one of them out.")
    return settings_of(options, hosts, ranks, variables=variables, fabric=fabric, reports=not options["quiet"])


def _launch(
    options: Mapping[str, Any], settings: Settings, command: Sequence[str], environment: Mapping[str, str]
) -> int:
    from smddp_tf.run.hosts.network import local_interfaces
    from smddp_tf.run.launch import launch
    from smddp_tf.run.launch.before_start import missing_program, notes

    if options["dry_run"]:
        click.echo(launch.line_of(settings, environment)[0].shown(command))
        return 0
    if problem := missing_program(command, settings, environment):
        click.echo(f"smddprun: {problem}", err=True)
        return _EXIT_NO_PROGRAM
    for note in notes(settings, local_interfaces()):
        say(note)
    least = options["min_np"] if options["min_np"] is not None else settings.ranks
    if options["elastic"] or options["commit_dir"] or least < settings.ranks or grows(options):
        from smddp_tf.run.launch.restarts import Policy, run_elastic

        growth = growth_of(options, least)
        policy = Policy(growth, commits_at(options["commit_dir"]), options["reset_limit"])
        code = run_elastic(settings, policy, lambda start: launch.launch(start, command, growth=growth), say).code
    else:
        code = launch.launch(settings, command).code
    if code == 0 and options["monitor"] and not options["quiet"]:
        with contextlib.suppress(LaunchError):  # the program has recorded nothing, or in a folder of other hosts
            _diagnose(options["monitor"], strict=False, after_job=True)
    return code

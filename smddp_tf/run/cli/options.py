"""The command line's options, and horovodrun's --config-file: YAML with sections, such as `autotune: {enabled: true}`.

The options are those of horovodrun that apply to MPI, and a few of our own. Those that become environment variables of
the ranks are rows of `KNOBS`, one table for options, variables and the keys of the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from smddp_tf.aliases import FAMILIES
from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch import fabric, settings


class _Ranks(click.types.IntParamType):
    """The number of ranks, also as in -np2, which click takes for -n p2. Its message says how -np is written."""

    def convert(self, value: Any, *where: Any) -> Any:
        number: Any = str(value).removeprefix("p")
        return super().convert(number, *where)

    def fail(self, message: str, *where: Any) -> NoReturn:
        super().fail(f"{message} Expected a number after a blank: -np 4.", *where)


def _as_switch(value: Any) -> str:
    return "1" if value else "0"


def _as_opposite(value: Any) -> str:
    return _as_switch(not value)


@dataclass
class Knob:
    """A flag.

    Attributes:
        option: without the dashes.
        kind: bool, int, float or str.
        section, key: where horovodrun's YAML file has it; the key is the option's name without the section's, or given.
        help: for --help.
        own_variable: the variable of the engine that wins over Horovod's, so it is set too.
        as_text: the variable's value; as_own: that of `own_variable`, where it differs.
        ignored: why the flag is accepted and has no effect, which leads to a note; "": it has one.
        off: the option that switches a switch off; --no-OPTION, or given.
        variable: Horovod's environment variable, which scripts may read as well; that of the option's name, or given.
    """

    option: str
    kind: type
    section: str
    help: str = ""
    own_variable: str = ""
    as_text: Callable[[Any], str] = str
    as_own: Callable[[Any], str] | None = None
    ignored: str = ""
    key: str = ""
    variable: str = ""
    off: str = ""

    def __post_init__(self) -> None:
        self.key = self.key or self.name.removeprefix(f"{self.section}_")
        self.variable = self.variable or f"HOROVOD_{self.name.upper()}"
        if self.kind is bool and self.as_text is str:
            self.as_text = _as_switch

    @property
    def name(self) -> str:
        return self.option.replace("-", "_")


def _megabytes(value: float) -> str:
    if value < 0:
        raise LaunchError(f"--fusion-threshold-mb must be 0 or more. Received: {value:g}.")
    return str(int(value * 1024 * 1024))


def _our_level(value: str) -> str:
    return "error" if value.lower() == "fatal" else value.lower()


def _full_path(value: str) -> str:
    return value if value == "DYNAMIC" else os.path.abspath(value)


KNOBS = (
    Knob("stall-check", bool, "stall_check", "Watch for ranks that are missing (on).", as_text=_as_opposite,
         key="enabled", variable="HOROVOD_STALL_CHECK_DISABLE"),
    Knob("fusion-threshold-mb", float, "params",
         "Close a fusion bucket at this size, in MiB; 0 gives every tensor its own.", "SMDDP_BUCKET_BYTES",
         _megabytes, variable="HOROVOD_FUSION_THRESHOLD"),
    Knob("cycle-time-ms", float, "params", ignored="the engine has no cycle, a bucket starts when it is full.",
         variable="HOROVOD_CYCLE_TIME"),
    Knob("cache-capacity", int, "params", "How many requests by name that recur get a number; 0: none.",
         "SMDDP_CACHE_CAPACITY"),
    Knob("hierarchical-allreduce", bool, "params", ignored="reductions are always hierarchical."),
    Knob("hierarchical-allgather", bool, "params", ignored="the engine chooses."),
    Knob("torus-allreduce", bool, "params", ignored="SMDDP_RAIL_ALGORITHM chooses between nodes."),
    Knob("autotune", bool, "autotune", own_variable="SMDDP_AUTOTUNE", key="enabled",
         ignored="set SMDDP_BUCKET_BYTES; nothing is tuned while a job runs."),
    Knob("autotune-log-file", str, "autotune", ignored="nothing is tuned.", variable="HOROVOD_AUTOTUNE_LOG"),
    Knob("autotune-warmup-samples", int, "autotune", ignored="nothing is tuned."),
    Knob("autotune-steps-per-sample", int, "autotune", ignored="nothing is tuned."),
    Knob("autotune-bayes-opt-max-samples", int, "autotune", ignored="nothing is tuned."),
    Knob("autotune-gaussian-process-noise", float, "autotune", ignored="nothing is tuned."),
    Knob("timeline-filename", str, "timeline", "Write a trace of all ranks to this file (or DYNAMIC).",
         "SMDDP_TIMELINE", _full_path, variable="HOROVOD_TIMELINE"),
    Knob("timeline-mark-cycles", bool, "timeline", "Mark the engine's turns in the trace.",
         "SMDDP_TIMELINE_MARK_CYCLES"),
    Knob("monitor", str, "monitor", "Record steps and the use of all hosts in this folder, the same one on all hosts.",
         as_text=settings.absolute, key="folder", variable="SMDDP_MONITOR"),
    Knob("stall-check-warning-time-seconds", int, "stall_check", "Warn when a rank has been missing so long.",
         "SMDDP_STALL_WARN_SECONDS", variable="HOROVOD_STALL_CHECK_TIME_SECONDS"),
    Knob("stall-check-shutdown-time-seconds", int, "stall_check",
         "Raise an error on all ranks when one has been missing so long; 0: never.",
         "SMDDP_STALL_ERROR_SECONDS", variable="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
    Knob("mpi-threads-disable", bool, "library_options", ignored="MPI is always used with threads."),
    Knob("num-nccl-streams", int, "library_options", ignored="NCCL's work has one stream of its own."),
    Knob("thread-affinity", int, "library_options", ignored="the engine's thread is not bound."),
    Knob("gloo-timeout-seconds", int, "library_options", ignored="there is no Gloo."),
    Knob("log-level", str, "logging",
         "Least severe message of the engine: trace, debug, info, warning, error or fatal.", "SMDDP_LOG_LEVEL",
         str.lower, _our_level, key="level"),
    Knob("log-with-timestamp", bool, "logging",
         "The engine's own messages carry the time; for all lines: --prefix-timestamp.", "SMDDP_LOG_TIMESTAMP",
         _as_opposite, _as_switch, key="with_timestamp", variable="HOROVOD_LOG_HIDE_TIME",
         off="log-without-timestamp"),
)  # fmt: skip


def _knob_option(knob: Knob) -> Callable[..., Any]:
    hidden = bool(knob.ignored)  # docs/launching.md lists them
    flag = f"--{knob.option}/--{knob.off or f'no-{knob.option}'}" if knob.kind is bool else f"--{knob.option}"
    return click.option(flag, knob.name, type=knob.kind, default=None, help=knob.help, hidden=hidden)


_FLAG: dict[str, Any] = {"is_flag": True, "default": None}

OPTIONS = [
    click.option("-v", "--version", "show_version", help="Print the version.", **_FLAG),
    click.option("-np", "--np", "-n", "--num-proc", "num_proc", type=_Ranks(), help="Number of ranks."),
    click.option("-cb", "--check-build", "check_build", help="Print what is built.", **_FLAG),
    click.option("--doctor", help="Look for what is wrong around the job, without its command.", **_FLAG),
    click.option("--diagnose", metavar="DIR",
                 help="Say what slowed down the job that was recorded here. A --monitor job says it at its end."),
    click.option("--strict", help="With --diagnose: exit code 3 where a rule has fired.", **_FLAG),
    click.option("-H", "--hosts", "hosts", help="Hosts with slots: host1:4,host2:4."),
    click.option("--hostfile", "-hostfile", "--host-file", "hostfile", help="File with a `host slots=N` in each line."),
    click.option("--as", "alias", type=click.Choice(FAMILIES), help="Imports of this library resolve to smddp_tf."),
    click.option("--keras-distribution", help="A script of Keras trains data-parallel (keras.distribution).", **_FLAG),
    click.option("-m", "module", help="COMMAND is a Python module, as with `python -m`.", **_FLAG),
    click.option("--dry-run", help="Print mpirun's line and start nothing.", **_FLAG),
    click.option("--mpirun", help="The launcher to use. Defaults to the one of the MPI that smddp_tf is built with."),
    click.option("--network-interfaces", "--network-interface", "-network-interfaces", "network_interfaces",
                 help="Interfaces or networks to use, such as eth0 or 10.0.0.0/24. Default: what leads to the hosts."),
    click.option("--start-timeout", type=float, help="Seconds within which all ranks must have been started."),
    click.option("--output-filename", help="Folder for copies of what ranks print: rank.N/stdout, rank.N/stderr."),
    click.option("-prefix-timestamp", "--prefix-timestamp", "prefix_timestamp", help="Lines carry the time.", **_FLAG),
    click.option("--verbose", "-verbose", count=True, default=None, help="Print mpirun's line; twice: MPI talks."),
    click.option("--quiet", "-q", help="No line of smddprun at the start and the end, and no diagnosis.", **_FLAG),
    click.option("--config-file", help="YAML file with options, in horovodrun's form. The command line wins."),
    click.option("-p", "--ssh-port", type=int, help="Port of ssh on the hosts."),
    click.option("-i", "--ssh-identity-file", help="Private key for ssh."),
    click.option("-x", "exported", multiple=True, metavar="NAME[=VALUE]",
                 help="Set a variable for the ranks. NAME alone takes the value from here, unseen by other users."),
    click.option("--mpi-args", help='More arguments for mpirun: --mpi-args="--report-bindings".'),
    click.option("--binding-args", help="Arguments on binding, instead of --bind-to none --map-by slot."),
    click.option("--fabric", type=click.Choice(fabric.FABRICS), envvar="SMDDP_FABRIC",
                 help="Messages between hosts: TCP, libfabric (EFA, ...) or UCX. Default: auto, which is TCP."),
    click.option("--tcp/--no-tcp", default=None, help="The same as --fabric tcp."),
    *map(_knob_option, KNOBS),
    click.option("--disable-cache", help="No meaning here: there is no cache of checks.", hidden=True, **_FLAG),
    click.option("--mpi/--no-mpi", "use_mpi", default=None,
                 help="Start the ranks by MPI (the default), or without it, by ssh; they connect by TCP then."),
    click.option("--gloo", "use_gloo", help="The same as --no-mpi.", hidden=True, **_FLAG),
    click.option("--jsrun", "use_jsrun", hidden=True, **_FLAG),
    click.option("--elastic", help="Start again after a failure, from the last commit of hvd.elastic.", **_FLAG),
    click.option("--min-np", "--min-num-proc", "min_np", type=int,
                 help="Go on, or start again, with fewer ranks, this many at least. Implies --elastic."),
    click.option("--max-np", "--max-num-proc", "max_np", type=int, help="Grow to this many ranks. Default: all slots."),
    click.option("--commit-dir",
                 help="Folder or URL (s3://...) for the commits, the same on all hosts. Default: one for this job."),
    click.option("--slots-per-host", "--slots", "slots_per_host", type=int, help="Ranks of a host that does not say."),
    click.option("--elastic-timeout", type=int, help="Seconds to wait for hosts. Default: 600."),
    click.option("--reset-limit", type=int, help="How often the job may start again. Default: no limit."),
    click.option("--blacklist-cooldown-range", type=int, nargs=2, hidden=True),
    click.option("--host-discovery-script", help="Prints the hosts there are, while the job runs. Needs --no-mpi."),
]  # fmt: skip


# Of the config file: keys outside of its sections, and keys of sections that have no knob.
_TOP_KEYS = {
    "binding_args", "disable_cache", "hostfile", "hosts", "mpi_args", "network_interfaces", "num_proc",
    "output_filename", "prefix_timestamp", "ssh_identity_file", "ssh_port", "start_timeout", "fabric", "tcp", "verbose",
}  # fmt: skip
_TOP_ALIASES = {"np": "num_proc", "network_interface": "network_interfaces", "host_file": "hostfile"}
_OF_ELASTIC = ("min_np", "max_np", "slots_per_host", "elastic_timeout", "reset_limit", "host_discovery_script")
_KEYS_WITHOUT_KNOB = {
    "logging": {"hide_timestamp": "log_with_timestamp"},
    "elastic": {"min_num_proc": "min_np", "max_num_proc": "max_np", **{name: name for name in _OF_ELASTIC}},
}

# The headings of --help, and the parameters below each, in this order.
_GROUPS = {
    "Ranks and hosts": ("num_proc", "hosts", "hostfile", "slots_per_host", "ssh_port", "ssh_identity_file"),
    "The program": ("module", "exported", "alias", "keras_distribution"),
    "Output": ("output_filename", "prefix_timestamp", "log_level", "log_with_timestamp", "quiet", "verbose", "dry_run"),
    "Look at a job": ("monitor", "diagnose", "strict", "timeline_filename", "timeline_mark_cycles", "doctor"),
    "When ranks are missing": (
        "start_timeout", "stall_check", "stall_check_warning_time_seconds", "stall_check_shutdown_time_seconds",
    ),
    "Go on or start again after a failure, and grow": (
        "elastic", "min_np", "commit_dir", "reset_limit", "host_discovery_script", "max_np", "elastic_timeout",
    ),
    "MPI and networks": ("use_mpi", "fabric", "tcp", "network_interfaces", "mpirun", "mpi_args", "binding_args"),
    "Tuning": ("fusion_threshold_mb", "cache_capacity"),
}  # fmt: skip


class GroupedCommand(click.Command):
    """A command whose --help has its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes them; those of no group come last. Without COMMAND, which has no text: click 8.5.1 gives it a row."""
        rows = {one.name: row for one in self.get_params(ctx) if (row := one.get_help_record(ctx)) and row[1]}
        groups = {heading: [rows.pop(name) for name in names] for heading, names in _GROUPS.items()}
        for heading, group in {**groups, "Other": list(rows.values())}.items():
            with formatter.section(heading):
                formatter.write_dl(group)


def variables_of_knobs(values: Mapping[str, Any]) -> dict[str, str]:
    """The ranks' variables for flags by name (`fusion_threshold_mb`); those that are None are left alone.

    Raises:
        LaunchError: a value is invalid.
    """
    variables = {}
    for knob in KNOBS:
        if (value := values.get(knob.name)) is not None:
            variables[knob.variable] = knob.as_text(value)
            if knob.own_variable:
                variables[knob.own_variable] = (knob.as_own or knob.as_text)(value)
    return variables


def notes_for(values: Mapping[str, Any]) -> list[str]:
    """A sentence for each given flag that has no effect."""
    given = [knob for knob in KNOBS if knob.ignored and values.get(knob.name)]
    return [f"--{knob.option} is ignored: {knob.ignored}" for knob in given]


def read_config(path: str) -> dict[str, Any]:
    """The options of a file, by the names of the command line's options (`num_proc`). Those given there win.

    Raises:
        LaunchError: the file cannot be read, is not such YAML, or has an unknown key.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchError(f"The config file {path} cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise LaunchError(f"The config file {path} is not YAML: {error}") from None
    if not isinstance(content or {}, dict):
        raise LaunchError(f"The config file {path} must hold keys and values. Received: {type(content).__name__}.")
    return _flattened(content or {}, path)


def _flattened(content: dict[str, Any], path: str) -> dict[str, Any]:
    sections = _KEYS_WITHOUT_KNOB.keys() | {knob.section for knob in KNOBS}
    options: dict[str, Any] = {}
    for name, value in content.items():
        if name in sections:
            if not isinstance(value or {}, dict):
                raise LaunchError(f"`{name}` in {path} must be a section with keys. Received: {value!r}.")
            for key, of_key in (value or {}).items():
                options[_option_of(name, key, path)] = not of_key if key == "hide_timestamp" else of_key
        elif name == "controller":
            if str(value).lower() not in ("mpi", "auto"):
                options[f"use_{str(value).lower()}"] = True
        elif _TOP_ALIASES.get(name, name) in _TOP_KEYS:
            options[_TOP_ALIASES.get(name, name)] = value
        else:
            raise LaunchError(
                f"{path} has a key `{name}` that smddprun does not know. Known: the sections "
                f"{', '.join(sorted(sections))}; the keys controller, {', '.join(sorted(_TOP_KEYS))}."
            )
    return options


def _option_of(section: str, key: str, path: str) -> str:
    options = {knob.key: knob.name for knob in KNOBS if knob.section == section} | _KEYS_WITHOUT_KNOB.get(section, {})
    if key not in options:
        raise LaunchError(
            f"{path} has a key `{key}` under `{section}` that smddprun does not know. Known there: "
            f"{', '.join(sorted(options))}."
        )
    return options[key]

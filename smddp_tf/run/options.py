"""The command line's options: those of horovodrun that apply to MPI, and a few of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from smddp_tf.aliases import FAMILIES
from smddp_tf.run.before_start import Ranks
from smddp_tf.run.fabric import FABRICS
from smddp_tf.run.knobs import KNOBS, Knob


def _switch(name: str, help: str) -> Callable[..., Any]:
    return click.option(f"--{name}/--no-{name}", name.replace("-", "_"), default=None, help=help)


def _knob_option(knob: Knob) -> Callable[..., Any]:
    if knob.kind is bool:
        return _switch(knob.option, knob.help)
    return click.option(f"--{knob.option}", knob.name, type=knob.kind, help=knob.help)


_FLAG: dict[str, Any] = {"is_flag": True, "default": None}
_HIDDEN: dict[str, Any] = {"hidden": True}

_OPTIONS = [
    click.option("-v", "--version", "show_version", help="Print the version.", **_FLAG),
    click.option("-np", "--np", "-n", "--num-proc", "num_proc", type=Ranks(), help="Number of ranks."),
    click.option("-cb", "--check-build", "check_build", help="Print what is built.", **_FLAG),
    click.option("--doctor", help="Look for what is wrong around the job, without its command.", **_FLAG),
    click.option("--diagnose", metavar="DIR", help="Say what slows a job down that was recorded to this folder."),
    click.option("--strict", help="With --diagnose: exit code 3 where a rule has fired.", **_FLAG),
    click.option("-H", "--hosts", "hosts", help="Hosts with slots: host1:4,host2:4."),
    click.option("--hostfile", "-hostfile", "--host-file", "hostfile", help="File with a `host slots=N` in each line."),
    click.option("--as", "alias", type=click.Choice(FAMILIES), help="Imports of this library resolve to smddp_tf."),
    click.option("--keras-distribution", help="A script of Keras trains data-parallel (keras.distribution).", **_FLAG),
    click.option("--shared-tensors", help="TensorFlow's tensors lie where the ranks of a node read them.", **_FLAG),
    click.option("-m", "module", help="COMMAND is a Python module, as with `python -m`.", **_FLAG),
    click.option("--dry-run", help="Print mpirun's line and start nothing.", **_FLAG),
    click.option("--mpirun", help="The launcher to use. Defaults to the one of the MPI that smddp_tf is built with."),
    click.option("--network-interfaces", "--network-interface", "-network-interfaces", "network_interfaces",
                 help="Interfaces or networks to use, such as eth0 or 10.0.0.0/24. Default: what leads to the hosts."),
    click.option("--start-timeout", type=float, help="Seconds within which all ranks must have been started."),
    click.option("--output-filename", help="Folder for copies of what ranks print: rank.N/stdout, rank.N/stderr."),
    click.option("-prefix-timestamp", "--prefix-timestamp", "prefix_timestamp", help="Lines carry the time.", **_FLAG),
    click.option("--verbose", "-verbose", count=True, default=None, help="Print mpirun's line; twice: MPI talks."),
    click.option("--config-file", help="YAML file with options, in horovodrun's form. The command line wins."),
    click.option("-p", "--ssh-port", type=int, help="Port of ssh on the hosts."),
    click.option("-i", "--ssh-identity-file", help="Private key for ssh."),
    click.option("-x", "exported", multiple=True, metavar="NAME[=VALUE]",
                 help="Set a variable for the ranks. NAME alone takes the value from here, unseen by other users."),
    click.option("--mpi-args", help='More arguments for mpirun: --mpi-args="--report-bindings".'),
    click.option("--binding-args", help="Arguments on binding, instead of --bind-to none --map-by slot."),
    click.option("--fabric", type=click.Choice(FABRICS),
                 help="Messages between hosts: TCP, libfabric (EFA, ...) or UCX. Default: auto, which is TCP."),
    click.option("--tcp/--no-tcp", default=None, help="The same as --fabric tcp."),
    _switch("stall-check", "Watch for ranks that are missing (on)."),
    *map(_knob_option, KNOBS),
    click.option("--log-with-timestamp/--log-without-timestamp", "log_with_timestamp", default=None,
                 help="The engine's own messages carry the time; for all lines: --prefix-timestamp."),
    click.option("--disable-cache", help="No meaning here: there is no cache of checks.", **_FLAG),
    click.option("--mpi", "use_mpi", help="The only way there is.", **_FLAG, **_HIDDEN),
    click.option("--gloo", "use_gloo", **_FLAG, **_HIDDEN),
    click.option("--jsrun", "use_jsrun", **_FLAG, **_HIDDEN),
    click.option("--elastic", help="Start again after a failure, from the last commit of hvd.elastic.", **_FLAG),
    click.option("--min-np", "--min-num-proc", "min_np", type=int,
                 help="Start again with fewer ranks when hosts are lost, this many at least. Implies --elastic."),
    click.option("--max-np", "--max-num-proc", "max_np", type=int, **_HIDDEN),
    click.option("--commit-dir",
                 help="Folder or URL (s3://...) for the commits, the same on all hosts. Default: one for this job."),
    click.option("--slots-per-host", "--slots", "slots_per_host", type=int, help="Ranks of a host that does not say."),
    click.option("--elastic-timeout", type=int, **_HIDDEN),
    click.option("--reset-limit", type=int, help="How often the job may start again. Default: no limit."),
    click.option("--blacklist-cooldown-range", type=int, nargs=2, **_HIDDEN),
    click.option("--host-discovery-script", **_HIDDEN),
]  # fmt: skip


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a click command with all of them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function

"""Jobs that get hosts while they run: from the options of a command line, or the arguments of `run`, to `Growth`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from smddp_tf.run.hosts.discovery import Discover, discovered_hosts, of_function, of_script
from smddp_tf.run.hosts.hosts import total_slots
from smddp_tf.run.launch.settings import Growth

_ELASTIC_TIMEOUT = 600.0  # Horovod's default


def has_mpi(options: Mapping[str, Any]) -> bool:
    """Whether MPI starts the job, unless there is none on the machine."""
    return not options.get("use_gloo") and options["use_mpi"] is not False


def grows(options: Mapping[str, Any]) -> bool:
    """Whether the job gets hosts that a script, or a function, names while it runs, which jobs of MPI cannot."""
    return bool(options["host_discovery_script"] and not has_mpi(options))


def with_discovered_hosts(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the hosts that a discovery script, or function, names, and the number of ranks for them.

    Raises:
        LaunchError: there are too few for so long.
    """
    discover, ranks, most = _discover(options), options["num_proc"], options["max_np"]
    if discover is None:
        return options
    wanted, seconds = ranks or options["min_np"] or 1, options["elastic_timeout"] or _ELASTIC_TIMEOUT
    hosts = discovered_hosts(options["host_discovery_script"], discover, wanted, seconds)
    slots = total_slots(hosts)
    return {**options, "hosts": ",".join(map(str, hosts)), "num_proc": ranks or min(slots, most or slots)}


def growth_of(options: Mapping[str, Any], least: int) -> Growth:
    """How many ranks the job may have, `least` at least, and where hosts come from."""
    cool_down, seconds = options["blacklist_cooldown_range"], options["elastic_timeout"] or _ELASTIC_TIMEOUT
    return Growth(least, options["max_np"], _discover(options), seconds, cool_down[0] if cool_down else math.inf)


def _discover(options: Mapping[str, Any]) -> Discover | None:
    source, slots = options["host_discovery_script"], options["slots_per_host"] or 1
    if callable(source):
        return of_function(source)
    return of_script(source, slots) if source else None

"""The line of a job without MPI, and what its ranks need to meet."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping

from smddp_tf.lifecycle.rank_variables import RENDEZVOUS
from smddp_tf.link.channel import ADDRESS, KEY
from smddp_tf.rendezvous.meeting import SECRET
from smddp_tf.rendezvous.starters import COORDINATOR
from smddp_tf.run.hosts.hosts import is_this_host
from smddp_tf.run.launch.mpirun_command import MpirunCommand, ssh_words, travels
from smddp_tf.run.launch.settings import Settings
from smddp_tf.run.rank import starter


def direct_command(settings: Settings, environment: Mapping[str, str]) -> MpirunCommand:
    """The line that starts a job's ranks by ssh, and here directly. It has names of variables, and no values."""
    by_host = itertools.groupby(settings.hosts_of_ranks)
    hosts = [("" if is_this_host(name) else name, len(list(group))) for name, group in by_host]
    agent = ["ssh", "-o", "BatchMode=yes", *ssh_words(settings)]
    forwarded = [*filter(travels, environment), *settings.variables, ADDRESS, KEY, COORDINATOR, SECRET, *RENDEZVOUS]
    words = starter.words(hosts, agent, sorted({*forwarded}))
    return MpirunCommand(tuple(words), dict(settings.variables), forwards_all=True, is_direct=True)


def meeting_variables(host: str, port: str) -> dict[str, str]:
    """Where the ranks meet, and with what they sign."""
    return {COORDINATOR: f"{host}:{port}", SECRET: secrets.token_hex(32)}

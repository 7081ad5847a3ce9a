"""The line of a job without MPI, and what its ranks need to meet."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence

from smddp_tf.lifecycle.rank_variables import RENDEZVOUS
from smddp_tf.link.channel import ADDRESS, KEY
from smddp_tf.rendezvous.meeting import SECRET
from smddp_tf.rendezvous.starters import COORDINATOR
from smddp_tf.run.hosts.hosts import is_this_host
from smddp_tf.run.launch.mpirun_command import MpirunCommand, travels
from smddp_tf.run.launch.settings import Settings
from smddp_tf.run.rank import starter

# ssh ends when its host has not answered for about ten seconds.
_NOTICES_LOSS = ("-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=3")


def direct_command(settings: Settings, environment: Mapping[str, str]) -> MpirunCommand:
    """The line that starts a job's ranks by ssh, and here directly. It has names of variables, and no values."""
    words = _words(settings, environment, list(Counter(settings.hosts_of_ranks).items()))
    return MpirunCommand(tuple(words), dict(settings.variables), forwards_all=True, is_direct=True)


def line_on_host(settings: Settings, environment: Mapping[str, str], host: str, count: int, first: int) -> list[str]:
    """The words that start `count` ranks of a job that grows on a host; `first` is the number of the first of them."""
    return _words(settings, environment, [(host, count)], first)


def _words(
    settings: Settings, environment: Mapping[str, str], hosts: Sequence[tuple[str, int]], first: int | None = None
) -> list[str]:
    agent = ["ssh", "-o", "BatchMode=yes", *(_NOTICES_LOSS if first is not None else ()), *settings.ssh]
    forwarded = [*filter(travels, environment), *settings.variables, ADDRESS, KEY, COORDINATOR, SECRET, *RENDEZVOUS]
    places = [("" if is_this_host(name) else name, count) for name, count in hosts]
    return starter.words(places, agent, sorted({*forwarded}), first)


def meeting_variables(host: str, port: str) -> dict[str, str]:
    """Where the ranks meet, and with what they sign."""
    return {COORDINATOR: f"{host}:{port}", SECRET: secrets.token_hex(32)}

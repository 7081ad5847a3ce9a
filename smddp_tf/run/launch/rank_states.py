"""The states of the ranks of a job: which have started, wait in `hvd.init`, or have ended, and how."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from smddp_tf.link.ends import Ends
from smddp_tf.run.hosts.hosts import NotStarted, is_this_host, shortened

_WAIT_SECONDS = 5.0  # in `hvd.init`, before it is said for whom
_INIT_SECONDS = 5.0  # for `hvd.init` of the others when a rank has ended without it


class RankStates:
    """The states of the ranks, as they have reported them.

    Args:
        hosts: of each rank.

    Attributes:
        hosts: of each rank; a job that grows appends to it.
        gone: ranks without which the job goes on.
        of_peer: the ranks whose supervisors are connected, by peer of the server.
        started: host and process of each rank that has reported, by rank.
        in_init: the ranks that wait in `hvd.init`, and since when (seconds of the monotonic clock).
        ends: of those that have ended.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = list(hosts)
        self.of_peer: dict[int, int] = {}
        self.started: dict[int, tuple[str, int]] = {}
        self.in_init: dict[int, float] = {}
        self.ends = Ends()
        self.gone: set[int] = set()
        self._entered: set[int] = set()  # those that have ever called `hvd.init`
        self._said_who_is_late = False

    @property
    def all_started(self) -> bool:
        return len(self.started.keys() | self.gone) == len(self.hosts)

    @property
    def all_ended(self) -> bool:
        return len(self.ends.keys() | self.gone) == len(self.hosts)

    @property
    def apart(self) -> bool:
        """Several ranks have loaded TensorFlow, and none has called `hvd.init`."""
        return len(self.hosts) > 1 and sum(end.alone for end in self.ends.values()) == len(self.hosts)

    @property
    def lost_hosts(self) -> frozenset[str]:
        """Hosts none of whose ranks has reported its end, while ranks of other hosts have."""
        heard = {self.hosts[rank] for rank in self.ends}
        return frozenset(host for host in self.hosts if heard and host not in heard and not is_this_host(host))

    def enter_init(self, rank: int) -> None:
        """The rank has called `hvd.init`."""
        self.in_init[rank] = time.monotonic()
        self._entered.add(rank)

    def check_init(self) -> None:
        """Raises NotStarted where mpirun does not end a job whose ranks wait in `hvd.init` for one that has ended."""
        if (text := self.never_joined()) and time.monotonic() > max(self.in_init.values()) + _INIT_SECONDS:
            raise NotStarted(text, ())

    def late_for_init(self) -> str:
        """Once, when ranks have waited for a while in their first `hvd.init`: for whom. Else ""."""
        late = [rank for rank in range(len(self.hosts)) if rank not in self._entered and rank not in self.ends]
        waited = time.monotonic() - min(self.in_init.values(), default=float("inf"))
        if self._said_who_is_late or not late or waited < _WAIT_SECONDS:
            return ""
        self._said_who_is_late = True
        return f"{len(self.in_init)} of {len(self.hosts)} ranks wait in hvd.init() for rank {shortened(late)}."

    def never_joined(self) -> str:
        """Which ranks have ended without `hvd.init`, in which others wait; "" where that is not so."""
        missing = [rank for rank, end in self.ends.items() if not (end.failed or end.initialized)]
        if not missing or not self.in_init:
            return ""
        host, _ = self.started[missing[0]]
        return (
            f"rank {shortened(missing)} on {host} has ended, with exit code 0, without having called hvd.init(), in "
            f"which rank {shortened(list(self.in_init))} waits for it. All ranks must call it."
        )

    def not_started(self, code: int) -> str:
        """Returns the report where mpirun or ssh has ended, with this exit code, before all ranks started; else ""."""
        missing, hosts = self._missing()
        if not missing:
            return ""
        advice = "" if is_this_host(hosts[0]) else f" See that {_ssh_works(hosts[0])}."
        return (
            f"rank {shortened(missing)} on {shortened(hosts)} had not started when mpirun, or ssh, ended with exit "
            f"code {code}; its own message is above.{advice}"
        )

    def too_late(self, start_timeout: float, mpirun: str) -> NotStarted:
        """The error where some have not started within `start_timeout` seconds."""
        missing, hosts = self._missing()
        heard = {self.hosts[rank] for rank in self.started}
        silent = tuple(dict.fromkeys(host for host in self.hosts if host not in heard))
        advice = (
            f"see that {_ssh_works(hosts[0])}, that the same Python is at {sys.executable} there, and that the hosts "
            "reach each other (--network-interfaces)."
        )
        text = (
            f"{len(missing)} of {len(self.hosts)} ranks had not started after {start_timeout:g} s "
            f"(--start-timeout): rank {shortened(missing)} on {shortened(hosts)}. "
            + (f"Nothing at all came from {shortened(silent)}. " if silent else "")
            + (f"{mpirun} hangs, or the machine is very busy." if hosts == ["localhost"] else f"Please {advice}")
        )
        return NotStarted(text, silent)

    def _missing(self) -> tuple[list[int], list[str]]:
        missing = [rank for rank in range(len(self.hosts)) if rank not in self.started]
        return missing, list(dict.fromkeys(self.hosts[rank] for rank in missing))


def _ssh_works(host: str) -> str:
    return f"`ssh {host} true` works from here without a question"

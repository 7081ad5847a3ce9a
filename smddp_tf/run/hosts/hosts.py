"""Hosts and their slots: from `-H`, from a host file, and which rank goes where."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from smddp_tf.exceptions import LaunchError


class NotStarted(LaunchError):
    """Not all ranks were in time.

    Args:
        message: what to say.
        hosts: those that did not report.
    """

    def __init__(self, message: str, hosts: tuple[str, ...]) -> None:
        super().__init__(message)
        self.hosts = hosts


class Host(NamedTuple):
    """A machine, and how many ranks it takes."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def shortened(names: Sequence[object], most: int = 8) -> str:
    """The names, separated by commas; of more than `most` the first ones and how many there are besides."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*map(str, names[:most]), *more])


def parse_hosts(text: str, default_slots: int = 1) -> list[Host]:
    """Hosts of `h1:4,h2:4`. A host without a number has `default_slots`; one that is named twice has the sum.

    Raises:
        LaunchError: a name is empty, or a number is not one.
    """
    return _merged([_parse_host(part, default_slots, f"-H {text}") for part in text.split(",") if part.strip()], text)


def parse_host_file(path: str | Path, default_slots: int = 1) -> list[Host]:
    """Hosts of a file with one in each line: `name`, `name slots=4` (Open MPI) or `name:4` (MPICH); # is a comment.

    Raises:
        LaunchError: the file cannot be read, is empty, or a line says something else.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LaunchError(f"The host file {path} cannot be read: {error.strerror}.") from None
    words_of = [(number, line.split("#")[0].replace("=", " = ").split()) for number, line in enumerate(lines, 1)]
    found = [_host_of_line(words, default_slots, f"line {number} of {path}") for number, words in words_of if words]
    return _merged(found, str(path))


def _host_of_line(line: list[str], default_slots: int, where: str) -> Host:
    name, *words = line
    if not words:
        return _parse_host(name, default_slots, where)
    settings = dict(zip(words[0::3], words[2::3]))
    well_formed = len(words) % 3 == 0 and words[1::3] == ["="] * (len(words) // 3)
    if not well_formed or "slots" not in settings or not set(settings) <= {"slots", "max_slots", "max-slots"}:
        raise LaunchError(f"Expected `name slots=N` in {where}. Received: `{' '.join(words)}` after the name.")
    return Host(name, _slots(settings["slots"], where))


def _parse_host(text: str, default_slots: int, where: str) -> Host:
    name, colon, slots = text.strip().rpartition(":")
    if not colon:
        return Host(slots, default_slots)
    if not name:
        raise LaunchError(f"Expected host:slots in {where}. Received: {text!r}, which names no host.")
    return Host(name, _slots(slots, where))


def _slots(text: str, where: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise LaunchError(f"Expected a number of slots of 1 or more in {where}. Received: {text!r}.")
    return int(text)


def _merged(hosts: Sequence[Host], source: str) -> list[Host]:
    if not hosts:
        raise LaunchError(f"Expected at least one host. Received: {source!r}, which names none.")
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return [Host(name, number) for name, number in slots.items()]


def total_slots(hosts: Sequence[Host]) -> int:
    """Returns the number of ranks for which the hosts have slots."""
    return sum(host.slots for host in hosts)


def hosts_of_ranks(hosts: Sequence[Host], ranks: int) -> list[str]:
    """The host of every rank: they fill one host after the other.

    Raises:
        LaunchError: there are fewer slots than ranks.
    """
    names = [host.name for host in hosts for _ in range(host.slots)]
    if len(names) < ranks:
        listed = ",".join(map(str, hosts))
        raise LaunchError(
            f"{ranks} ranks need {ranks} slots, but the hosts {listed} have {len(names)}. Start fewer ranks (-np), or "
            "give the hosts more slots: -H host:slots."
        )
    return names[:ranks]


@functools.cache
def is_this_host(name: str) -> bool:
    """True for this machine's own names and addresses."""
    own = socket.gethostname()
    if name in ("localhost", "127.0.0.1", "::1", own, own.split(".")[0]):
        return True
    with contextlib.suppress(OSError):
        return any(_is_own_address(str(entry[4][0])) for entry in socket.getaddrinfo(name, None))
    return False


def _is_own_address(address: str) -> bool:
    """Returns whether an address is one of this host: a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        return True
    return False

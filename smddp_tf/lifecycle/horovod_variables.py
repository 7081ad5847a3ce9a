"""What Horovod's launcher sets in a rank's environment, for programs that read it under any other launcher."""

from __future__ import annotations

import socket
from collections.abc import MutableMapping

__all__ = ["NAMES", "set_those_missing"]

_PLACES = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
NAMES = ("HOROVOD_HOSTNAME", *(f"HOROVOD_{place}" for place in _PLACES))

_set: dict[str, str] = {}  # by this process, which may begin another session as another rank


def set_those_missing(environment: MutableMapping[str, str], places: tuple[int, int, int, int, int, int]) -> None:
    """Sets the variables, except those that a launcher has set.

    Args:
        environment: of this process.
        places: rank, size, local rank, local size, cross rank, cross size.
    """
    values = dict(zip(NAMES, (socket.gethostname(), *map(str, places))))
    for name, value in values.items():
        if environment.get(name) in (None, _set.get(name)):
            environment[name] = _set[name] = value

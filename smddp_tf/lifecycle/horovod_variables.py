"""What Horovod's launcher sets in a rank's environment, for programs that read it under any other launcher."""

from __future__ import annotations

import socket
from collections.abc import MutableMapping

_OF_PLACES = tuple(
    f"HOROVOD_{place}" for place in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
)
NAMES = ("HOROVOD_HOSTNAME", *_OF_PLACES)

_set: dict[str, str] = {}  # by this process, which may begin another session as another rank


def variables_of_places(*places: int | None) -> dict[str, str]:
    """The variables of a rank's numbers, without those that are None.

    Args:
        places: rank, size, local rank, local size, cross rank, cross size; the last ones may be left out.
    """
    return {name: str(place) for name, place in zip(_OF_PLACES, places) if place is not None}


def set_those_missing(environment: MutableMapping[str, str], places: tuple[int, int, int, int, int, int]) -> None:
    """Sets the variables, except those that a launcher has set.

    Args:
        environment: of this process.
        places: all six, in the order of `variables_of_places`.
    """
    values = {"HOROVOD_HOSTNAME": socket.gethostname(), **variables_of_places(*places)}
    for name, value in values.items():
        if environment.get(name) in (None, _set.get(name)):
            environment[name] = _set[name] = value

"""Jobs whose ranks come and go: the launcher gives each process its rank anew in each session, called a round."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import ADDRESS, KEY, Kind
from smddp_tf.link.client import ControlClient
from smddp_tf.link.server import listen
from smddp_tf.rendezvous.meeting import World, connection_key
from smddp_tf.rendezvous.starters import NUMBER

_launcher: ControlClient | None = None  # one connection in the life of this process
_members: list[int] = []  # numbers of the processes of this round, by rank
_synced: list[int] | None = None  # of the last one in which this process had the state; None: it never had it
_failure = ""  # of the last session


def in_rounds(environment: Mapping[str, str]) -> bool:
    """Whether this process's job goes on without ranks that it loses, and with ranks that come later."""
    return NUMBER in environment


def join(environment: Mapping[str, str]) -> tuple[World, tuple[int, int, int, int]]:
    """Waits until the launcher has formed the next round.

    A process that comes later waits for the next commit of the others, as long as they train. How long the processes of
    a round wait for one another is the launcher's to say.

    Args:
        environment: of this process.

    Returns:
        This process among the others, for `_core.init`; and its rank, their number, its local rank and their number.

    Raises:
        LaunchError: there is no next round, or the launcher has ended.
    """
    global _launcher, _members
    number = int(environment[NUMBER])
    with listen("") as listener:
        mine: dict[str, Any] = {"number": number, "port": listener.getsockname()[1], "has_state": _synced is not None}
        mine |= {"host": environment.get("SMDDP_HOST_ID") or socket.gethostname(), "failure": _failure}
        try:
            if _launcher is None:
                _launcher = ControlClient(environment[ADDRESS], environment[KEY])
            _launcher.send(Kind.JOIN, json.dumps(mine).encode())
            while not (answer := json.loads(_launcher.receive(None))):
                pass  # news about hosts, which are in the answer
        except OSError as error:
            raise LaunchError(f"This process, started as rank {number}, has lost the launcher: {error}") from None
        if "error" in answer:
            raise LaunchError(answer["error"])
        key = connection_key(environment[KEY], answer["nonce"])
        _members = answer["members"]
        rank, size, local_rank, local_size = answer["place"]
        return (rank, answer["addresses"], key, os.dup(listener.fileno())), (rank, size, local_rank, local_size)


def hosts_updated() -> bool:
    """Whether the launcher has said that processes wait for the next round. Does not wait; it tells rank 0."""
    try:
        return _launcher is not None and bool(_launcher.receive(0.0))
    except OSError:  # nothing has come
        return False


def note_failure(text: str) -> None:
    """What has ended this process's last session; "" where nothing has failed."""
    global _failure
    _failure = text


def note_state() -> None:
    """This process has the job's state from now on, so that it can be rank 0 of a next round."""
    global _synced
    _synced = _members


def has_changed() -> bool:
    """Whether other processes have the ranks than when this process had the state last."""
    return _synced is not None and _synced != _members

"""Ranks that a scheduler, Ray or Spark, has put on hosts: their places, their numbers, and their variables."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, MutableMapping, Sequence

from smddp_tf.lifecycle.placement import Placement
from smddp_tf.lifecycle.rank_variables import RENDEZVOUS, remove_rank_variables, variables_of
from smddp_tf.link.server import listen
from smddp_tf.rendezvous.meeting import SECRET
from smddp_tf.rendezvous.starters import COORDINATOR, RANK, SIZE, VARIABLES

Place = tuple[str, int, str, list[str]]

# In which the failure of a rank that has ended the others is awaited, once a consequence of it is known.
CAUSE_SECONDS = 15.0


def variables_of_job(start_timeout: int | None = None) -> dict[str, str]:
    """Returns the variables that all ranks get from the process that starts them.

    Args:
        start_timeout: seconds within which all ranks must have called `hvd.init()`. Defaults to `SMDDP_START_TIMEOUT`.
    """
    seconds = {} if start_timeout is None else {"SMDDP_START_TIMEOUT": str(start_timeout)}
    return {"SMDDP_AS": os.environ.get("SMDDP_AS", ""), **seconds}


def place(host: str, devices: Iterable[object] = ()) -> Place:
    """What a process tells of itself, before ranks are assigned: also what the job needs if it becomes rank 0.

    Args:
        host: the address by which the others reach this host.
        devices: the GPUs that the scheduler has given to the process.

    Returns:
        The host, a port that is free there, a secret, and the devices.
    """
    with listen("") as free:
        return host, int(free.getsockname()[1]), secrets.token_hex(16), [str(device) for device in devices]


def variables_of_ranks(places: Sequence[Place]) -> list[dict[str, str]]:
    """Makes the processes ranks, those of a host neighbours, and returns the variables of each, in the given order.

    They are ours, Horovod's, and torchrun's for other libraries. All ranks of a host see its devices, each one's own at
    its local rank.

    Args:
        places: of the processes.
    """
    hosts = [host for host, *_ in places]
    order = sorted(range(len(places)), key=lambda process: hosts.index(hosts[process]))
    first, port, secret, _ = places[order[0]]
    meeting = {SIZE: str(len(places)), COORDINATOR: f"{first}:{port}", SECRET: secret}
    meeting.update(zip(RENDEZVOUS, (first, str(port - 1))))
    found = []
    for process, host in enumerate(hosts):
        here = [each for each in order if hosts[each] == host]
        numbers = Placement(order.index(process), len(places), here.index(process), len(here))
        devices = ",".join(dict.fromkeys(device for each in here for device in places[each][3]))
        seen = {"CUDA_VISIBLE_DEVICES": devices} if devices else {}
        found.append({**variables_of(numbers), **meeting, RANK: str(numbers.rank), **seen})
    return found


def take_place(environment: MutableMapping[str, str], variables: Mapping[str, str]) -> None:
    """Gives a process its place in a job, instead of one that it has inherited.

    Args:
        environment: of the process: what has started Ray or Spark may have been a rank, or a task of `srun`.
        variables: of its rank, with more.
    """
    remove_rank_variables(environment, VARIABLES)
    environment.update(variables)

"""How process groups come to be: the first one begins the session, others are process sets of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from smddp_tf import basics
from smddp_tf._native import loader
from smddp_tf.exceptions import LaunchError
from smddp_tf.rendezvous import meeting, starters
from smddp_tf.torch_backend import launched
from smddp_tf.torch_backend.process_group import Members, ProcessGroup

_own_sets = 0  # the largest number of this process, so that no two sets with a common member have the same


def register() -> None:
    """Makes `init_process_group("smddp")` known. PyTorch calls it as it is imported (entry point `torch.backends`)."""
    if "smddp" not in dist.Backend.backend_list:
        dist.Backend.register_backend("smddp", make_group, extended_api=True, devices=["cpu"])


@dataclass(frozen=True)
class Options:
    """For `init_process_group("smddp", pg_options=...)` and `new_group`.

    Attributes:
        wire_dtype: "float16" or "bfloat16": wider floating tensors are sent in this dtype for reductions; "int8": sent
            between nodes as 8-bit blocks; "": as they are.
    """

    wire_dtype: str = ""


def make_group(place: Any, options: Options | None = None) -> ProcessGroup:
    """Makes a process group, for PyTorch, on all of its ranks.

    Args:
        place: what `torch.distributed` says of the group: its store, its ranks, this process's number.
        options: None: as `Options()`.

    Raises:
        LaunchError: the ranks did not meet, or the engine counts them otherwise than PyTorch.
        ValueError: some ranks make the first group.
    """
    options = options or Options()
    ranks = list(place.global_ranks_in_group)
    has_all = not ranks or len(ranks) == dist.get_world_size()
    begins = not basics.is_initialized()
    if begins and not has_all:
        told = 'The first group of the backend "smddp" must be of all ranks. Received: '
        raise ValueError(f'{told}ranks={ranks}. Pass "smddp" to `init_process_group`, or make one of all ranks before.')
    if begins:
        _begin_session(place.store, place.group_rank, place.group_size)
    mine, theirs = (basics.rank(), basics.size()), (place.group_rank, place.group_size)
    if has_all and mine != theirs:
        ranks_of = "smddp_tf has started as rank {} of {}, PyTorch as rank {} of {}".format(*mine, *theirs)
        raise LaunchError(f"{ranks_of}. Start all processes by one launcher (docs/torch.md).")
    process_set = 0 if has_all else _new_process_set(place.store, place.group_rank, ranks)
    members = Members(process_set, ranks or range(place.group_size), place.group_id)
    return ProcessGroup(place.group_rank, members, options.wire_dtype, place.timeout, begins)


def _begin_session(store: dist.Store, rank: int, size: int) -> None:
    """The ranks meet where their launcher has them meet, else at a port of rank 0 that the store tells the others."""
    if size in (1, launched.size()):
        return basics.init()
    (address,) = _told(store, rank, _free_address(store), by=[0])
    place = {starters.RANK: str(rank), starters.SIZE: str(size), starters.COORDINATOR: address, "SMDDP_MPI": "off"}
    # PyTorch's processes may have a part of its variables, and an MPI of one process, which mpi4py starts.
    before = {name: os.environ.pop(name) for name in (*starters.VARIABLES, "SMDDP_MPI") if name in os.environ}
    os.environ.update(place)
    try:
        basics.init()
    finally:
        for name in place:
            del os.environ[name]
        os.environ.update(before)


def _new_process_set(store: dist.Store, group_rank: int, ranks: list[int]) -> int:
    """Made by its members alone: PyTorch does not call the backend on other ranks."""
    global _own_sets
    _own_sets = 1 + max(map(int, _told(store, group_rank, str(_own_sets), by=range(len(ranks)))))
    number: int = loader.core().FIRST_OWN_SET + _own_sets
    loader.core().add_own_process_set(ranks, number)
    return number


def _told(store: dist.Store, rank: int, text: str, by: Iterable[int]) -> list[str]:
    """What these ranks of the group tell. All call it; stores outlive process groups, so the calls are numbered."""
    turn = store.add(f"smddp/turns/{rank}", 1)
    store.set(f"smddp/{turn}/{rank}", text)
    return [store.get(f"smddp/{turn}/{other}").decode() for other in by]


def _free_address(store: Any) -> str:
    """Where the other ranks find this one, if it is rank 0: the store's host, where there is one, is that of rank 0."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    host = getattr(store, "host", "") or socket.gethostname()
    return meeting.endpoint(host, launched.free_port(), host)

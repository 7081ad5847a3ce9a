"""How process groups come to be: the first one begins the session, others are process sets of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from smddp_tf import basics
from smddp_tf._native import loader
from smddp_tf.exceptions import LaunchError
from smddp_tf.rendezvous import meeting, starters
from smddp_tf.torch_backend import launched
from smddp_tf.torch_backend.process_group import Members, ProcessGroup


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
    """
    options = options or Options()
    ranks = list(place.global_ranks_in_group)
    if ranks:
        process_set = 0 if len(ranks) == basics.size() else _new_process_set(place.store, place.group_rank, ranks)
        return ProcessGroup(place.group_rank, Members(process_set, ranks, place.group_id), options.wire_dtype, False)
    begins = not basics.is_initialized()
    if begins:
        _begin_session(place.store, place.group_rank, place.group_size)
    mine, theirs = (basics.rank(), basics.size()), (place.group_rank, place.group_size)
    if mine != theirs:
        raise LaunchError(
            f"smddp_tf has started as rank {mine[0]} of {mine[1]}, PyTorch as rank {theirs[0]} of {theirs[1]}. "
            "Expected: the same. Start all processes by one launcher (docs/torch.md)."
        )
    members = Members(0, range(place.group_size), place.group_id)
    return ProcessGroup(place.group_rank, members, options.wire_dtype, begins)


def _begin_session(store: dist.Store, rank: int, size: int) -> None:
    """The ranks meet where their launcher has them meet, else at a port of rank 0 that the store tells the others."""
    if size in (1, launched.size()):
        return basics.init()
    address = _of_rank_0(store, rank, lambda: _free_address(_root_of(store)))
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
    core = loader.core()
    count = _root_of(store)
    number = int(_of_rank_0(store, group_rank, lambda: str(core.FIRST_OWN_SET + count.add("smddp/process_sets", 1))))
    core.add_own_process_set(ranks, number)
    return number


def _of_rank_0(store: dist.Store, rank: int, choose: Callable[[], str]) -> str:
    """What rank 0 of the group chooses. Stores outlive process groups, so the calls are numbered."""
    key = f"smddp/{store.add(f'smddp/calls/{rank}', 1)}"
    if rank == 0:
        store.set(key, choose())
    return str(store.get(key).decode())


def _root_of(store: Any) -> Any:
    """Without the prefixes of process groups."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def _free_address(store: Any) -> str:
    """Where the other ranks find this one: the store's host, where there is one, which is that of rank 0."""
    host = getattr(store, "host", "") or socket.gethostname()
    with socket.create_server(("", 0)) as server:
        return meeting.endpoint(host, server.getsockname()[1], host)

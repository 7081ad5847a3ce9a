"""Sends any Python object to the other ranks, pickled by value. Needs no TensorFlow.

A payload begins with one byte that says whether an object or the text of an error follows: a rank that cannot pickle
its object must still answer the others.

Unpickling runs code chosen by the sender: these functions trust the other ranks. Everything else that arrives from
another rank is data, which is checked and never executed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar, cast

import cloudpickle
import numpy as np

from smddp_tf import basics
from smddp_tf._native import loader, threads
from smddp_tf._native.requests import NO_LIMIT, Kind
from smddp_tf.collectives.reduce_op import ReduceOp, Sum
from smddp_tf.collectives.root_ranks import checked_root
from smddp_tf.process_sets import ProcessSet, current, global_process_set, scoped

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn"]

Object = TypeVar("Object")
_OBJECT, _ERROR = 0, 1
_MAX_BYTES = 1 << 40


@scoped
def broadcast_object(
    obj: Object | None,
    root_rank: int = 0,
    session: object = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Object:
    """Returns the object that rank `root_rank` passed, on every rank.

    The others get a copy; the root gets its own object back. All ranks must run the same versions of the classes in it.

    Warning: the object is sent as a pickle, and unpickling can run any code. Every rank must trust the root as it
    trusts its own program, and a root must trust the sources of an object that it forwards.

    Args:
        obj: anything `cloudpickle` can pickle. Its value matters on the root only.
        root_rank: integer, the rank among all ranks whose object all ranks get. Defaults to 0.
        session: a TensorFlow 1 session, as Horovod's scripts pass it; not needed.
        name: the name by which the ranks match this operation. Defaults to "broadcast_object".
        process_set: the ranks that take part. Defaults to all.

    Returns:
        The object: `obj` itself on the root, a copy elsewhere.

    Raises:
        ValueError: `root_rank` is not a rank of the process set.
        RuntimeError: the root could not pickle its object. Raised on every rank.
    """
    name = name or threads.of_thread("broadcast_object")
    root_rank = checked_root(root_rank)
    is_root = basics.rank() == root_rank
    payload = _packed(obj) if is_root else np.empty(0, np.uint8)
    length = np.array([payload.size], np.int64)
    move(Kind.BROADCAST, length, length, f"{name}.length", root_rank)
    if not is_root:
        payload = np.empty(_checked(int(length[0]), root_rank), np.uint8)
    move(Kind.BROADCAST, payload, payload, f"{name}.data", root_rank)
    result: Any = obj if is_root and payload[0] == _OBJECT else _unpacked(payload, root_rank)
    return cast(Object, result)


def broadcast_object_fn(
    root_rank: int = 0,
    session: object = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Object | None], Object]:
    """Returns the function of one argument `broadcast_object(obj, root_rank, session, name, process_set)`.

    Horovod builds a graph for it once; here it is only shorter to write. It may be called as often as one likes. The
    warning of `broadcast_object` holds: unpickling can run any code of the root's.

    Example:
    >>> broadcast = hvd.broadcast_object_fn(root_rank=0, name="settings")
    >>> settings = broadcast(settings)

    Args:
        root_rank: see `broadcast_object`, like the arguments that follow.
        session: not needed.
        name: the name by which the ranks match the calls. Defaults to "broadcast_object".
        process_set: the ranks that take part. Defaults to all.

    Returns:
        A function of `obj` with the result of `broadcast_object`.
    """
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


@scoped
def allgather_object(
    obj: Object,
    session: object = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Object]:
    """Returns the objects of all ranks, in rank order.

    Warning: objects are sent as pickles, and unpickling can run any code. Every rank must trust all others as it trusts
    its own program.

    Args:
        obj: anything `cloudpickle` can pickle.
        session: a TensorFlow 1 session, as Horovod's scripts pass it; not needed.
        name: the name by which the ranks match this operation. Defaults to "allgather_object".
        process_set: the ranks that take part. Defaults to all.

    Returns:
        A list with one object for each rank.

    Raises:
        RuntimeError: a rank could not pickle its object. Raised on every rank.
    """
    name = name or threads.of_thread("allgather_object")
    payload, lengths = _packed(obj), np.empty(len(process_set.ranks or []), np.int64)
    move(Kind.ALLGATHER, np.array([payload.size], np.int64), lengths, name)
    gathered = np.empty(sum(map(_checked, lengths.tolist(), range(lengths.size))), np.uint8)
    move(Kind.ALLGATHER, payload, gathered, f"{name}.data")
    return [_unpacked(payload, rank) for rank, payload in enumerate(np.split(gathered, np.cumsum(lengths)[:-1]))]


def move(kind: Kind, array: np.ndarray, result: np.ndarray, name: str, root: int = 0, op: ReduceOp = Sum) -> None:
    """Sends NumPy arrays of one dimension, without TensorFlow, and waits.

    Args:
        kind: the collective.
        array: what this rank brings, C-contiguous.
        result: what it gets, of the same dtype; may be `array`.
        name: the name by which the ranks match the request.
        root: the rank whose values all get, of a broadcast.
        op: the reduction.
    """
    memory = (array.dtype.name, [array.size], array.ctypes.data, result.ctypes.data, result.size)
    loader.core().submit(kind, name, [memory], (array, result), (op, ""), root, [], current()).wait(NO_LIMIT)


def _checked(length: int, rank: int) -> int:
    """Returns the length of a payload that rank `rank` has announced; raises where no payload can have it."""
    if 1 <= length <= _MAX_BYTES:
        return length
    raise RuntimeError(f"Rank {rank} announced an object of {length} bytes. Expected: from 1 to {_MAX_BYTES}.")


def _packed(obj: object) -> np.ndarray:
    try:
        kind, data = _OBJECT, cloudpickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # whatever __reduce__ raises; it is raised again on every rank
        kind, data = _ERROR, f"{type(error).__name__}: {error}".encode()
    return np.frombuffer(bytearray([kind]) + data, np.uint8)  # of a bytearray: the engine may write there


def _unpacked(payload: np.ndarray, rank: int) -> Any:
    _checked(payload.size, rank)
    data = payload[1:].data
    if payload[0] == _ERROR:
        raise RuntimeError(f"Rank {rank} could not pickle its object: {bytes(data).decode(errors='replace')}")
    if payload[0] != _OBJECT:
        raise RuntimeError(f"Rank {rank} sent an object of unknown kind {payload[0]}. Do all run the same smddp_tf?")
    return pickle.loads(data)

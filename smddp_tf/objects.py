"""Sends any Python object to the other ranks, pickled by value. Needs no TensorFlow.

A payload begins with one byte that says whether an object or the text of an error follows: a rank that cannot pickle
its object must not leave the others waiting.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import numpy as np

from smddp_tf import _loader, basics

__all__ = ["allgather_object", "broadcast_object"]

_OBJECT, _ERROR = 0, 1


def broadcast_object(obj: Any, root_rank: int = 0, *, name: str | None = None) -> Any:
    """Returns the object that rank `root_rank` passed, on every rank.

    The others get a copy; the root gets its own object back. All ranks must run the same versions of the classes in it.

    Args:
        obj: anything `cloudpickle` can pickle. Its value matters on the root only.
        root_rank: the rank whose object everybody gets. Defaults to 0.
        name: the name by which the ranks match this operation. Defaults to "broadcast_object".

    Raises:
        RuntimeError: the root could not pickle its object. Raised on every rank.
    """
    name = name or "broadcast_object"
    is_root = basics.rank() == root_rank
    payload = _packed(obj) if is_root else np.empty(0, np.uint8)
    length = np.array([payload.size], np.int64)
    _loader.core().broadcast([length], "int64", root_rank, f"{name}.length")
    if not is_root:
        payload = np.empty(length[0], np.uint8)
    _loader.core().broadcast([payload], "uint8", root_rank, f"{name}.data")
    return obj if is_root and payload[0] == _OBJECT else _unpacked(payload, root_rank)


def allgather_object(obj: Any, *, name: str | None = None) -> list[Any]:
    """Returns the objects of all ranks, in rank order.

    Args:
        obj: anything `cloudpickle` can pickle.
        name: the name by which the ranks match this operation. Defaults to "allgather_object".

    Raises:
        RuntimeError: a rank could not pickle its object. Raised on every rank.
    """
    gathered, lengths = _loader.core().allgather(_packed(obj), "uint8", name or "allgather_object")
    payloads = np.split(gathered, np.cumsum(lengths)[:-1])
    return [_unpacked(payload, rank) for rank, payload in enumerate(payloads)]


def _packed(obj: Any) -> np.ndarray:
    try:
        kind, data = _OBJECT, cloudpickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # whatever __reduce__ raises; it is raised again on every rank
        kind, data = _ERROR, f"{type(error).__name__}: {error}".encode()
    payload = np.empty(1 + len(data), np.uint8)
    payload[0] = kind
    payload[1:] = np.frombuffer(data, np.uint8)
    return payload


def _unpacked(payload: np.ndarray, rank: int) -> Any:
    data = payload[1:].data
    if payload[0] == _ERROR:
        raise RuntimeError(f"Rank {rank} could not pickle its object: {bytes(data).decode()}")
    return pickle.loads(data)

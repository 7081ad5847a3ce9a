"""Requests to the engine, as `_core.submit` takes them."""

from __future__ import annotations

from enum import IntEnum

NO_LIMIT = 1e8  # seconds to wait: the engine ends every request, or its session with an error


class Kind(IntEnum):
    """The numbers of `RequestKind` (tf_ops/runtime/api/session.h)."""

    ALLREDUCE = 0
    BROADCAST = 1
    ALLGATHER = 2
    BARRIER = 3
    ALLTOALL = 5
    REDUCESCATTER = 6


REDUCTIONS = (Kind.ALLREDUCE, Kind.REDUCESCATTER)

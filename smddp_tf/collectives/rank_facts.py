"""Small facts of each rank, sent to all: flags, numbers and objects; all ranks must call such a function together.

And the warnings that follow from what all ranks know.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from smddp_tf._native.requests import Kind
from smddp_tf._native.threads import of_thread
from smddp_tf._warn import warn
from smddp_tf.basics import rank, size
from smddp_tf.collectives import objects, ops, reduce_op
from smddp_tf.monitor.steps import asked_ranks


def any_rank(flag: bool, name: str) -> bool:
    """Returns whether `flag` is true on any rank. In a step, the time that it takes is that of waiting for gradients.

    Args:
        flag: this rank's.
        name: the name by which the ranks match the request.
    """
    if size() == 1:
        return flag
    began = time.perf_counter_ns()
    answer = np.array([flag], np.int32)
    objects.move(Kind.ALLREDUCE, answer, answer, of_thread(name), op=reduce_op.Max)
    asked_ranks(began)
    return bool(answer[0])


def numbers_of_ranks(numbers: Sequence[float], name: str) -> Any:
    """Returns the numbers of all ranks as a NumPy array, [ranks, numbers]: int64 of integers, float64 of floats.

    Args:
        numbers: this rank's, as many on each rank.
        name: as for `any_rank`.
    """
    return ops.allgather(np.array([numbers]), name=of_thread(name)).numpy()


def objects_of_ranks(mine: Any, name: str) -> list[Any]:
    """Returns the objects of all ranks, by rank.

    Args:
        mine: this rank's; `cloudpickle` must be able to send it.
        name: as for `any_rank`.
    """
    return objects.allgather_object(mine, name=of_thread(name))


def facts_of_ranks(facts: dict[str, Any], name: str, call: str) -> list[dict[str, Any]]:
    """Returns the facts of each rank, by rank. One that cannot have any sends `{"error": text}`.

    Args:
        facts: this rank's; as for `objects_of_ranks`.
        name: as for `any_rank`.
        call: the call that has failed on that rank, for the error.

    Raises:
        RuntimeError: a rank, perhaps this one, has sent an error. Raised on every rank.
    """
    of_ranks = objects_of_ranks(facts, name)
    for number, other in enumerate(of_ranks):
        if "error" in other:
            raise RuntimeError(f"{call} failed on rank {number}: {other['error']}")
    return of_ranks


def warn_on_rank_zero(message: str) -> None:
    """Warns of what all ranks know: one of them says it."""
    if rank() == 0:
        warn(message)


@functools.cache
def warn_once_on_rank_zero(message: str) -> None:
    """`warn_on_rank_zero`, once in a process."""
    warn_on_rank_zero(message)

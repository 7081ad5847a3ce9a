"""`size()` and similar functions as ops, evaluated when a graph runs: a graph may outlive its session."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from smddp_tf import basics, process_sets
from smddp_tf._native import loader
from smddp_tf.collectives import graph
from smddp_tf.rendezvous import rounds

__all__ = ["local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "size_op"]


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of ranks, of all or of a process set.

    Args:
        process_set_id: number of the set. Defaults to 0, all ranks.
        name: name of the op.

    Returns:
        An int32 scalar. To run the op raises `tf.errors.FailedPreconditionError` before `init` and
        `tf.errors.InvalidArgumentError` when there is no such set any more.

    Raises:
        ValueError: there is no such set.
    """
    if process_set_id != 0 and loader.core().is_initialized():
        process_sets.ranks_of(process_set_id)
    return _value("size", process_set_id, name)


def rank_op(name: str | None = None) -> tf.Tensor:
    """Emits an op for `hvd.rank()`.

    Args:
        name: name of the op. Defaults to one that TensorFlow makes.

    Returns:
        Scalar tensor of dtype int32, this process's number among all ranks.
    """
    return _value("rank", 0, name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Emits an op for `hvd.local_size()`.

    Args:
        name: name of the op. Defaults to one that TensorFlow makes.

    Returns:
        Scalar tensor of dtype int32, the number of ranks on this node.
    """
    return _value("local_size", 0, name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Emits an op for `hvd.local_rank()`.

    Args:
        name: name of the op. Defaults to one that TensorFlow makes.

    Returns:
        Scalar tensor of dtype int32, this process's number among the ranks of its node.
    """
    return _value("local_rank", 0, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Emits an op that checks whether this process is in a process set.

    Args:
        process_set_id: integer, the number of the set. Defaults to 0, all ranks.
        name: name of the op. Defaults to one that TensorFlow makes.

    Returns:
        Scalar tensor of dtype int32: 1 when it is a member, else 0; -3 when there is no such set.
    """
    return _value("included", process_set_id, name)


def traced_ranks(what: str) -> list[Any]:
    """Emits, into a graph of a job whose ranks change, an op that fails on another rank, or number of ranks.

    Args:
        what: what depends on the ranks, for the message.

    Returns:
        The op; [] where there is nothing to check.
    """
    if tf.executing_eagerly() or graph.compiling() or not rounds.in_rounds(os.environ):
        return []
    now, traced = tf.stack([rank_op(), size_op()]), [basics.rank(), basics.size()]
    message = (
        f"A function was traced for rank {traced[0]} of {traced[1]}, and this process has another rank, or there is "
        f"another number of ranks, now: {what}. Create the tf.function in the function given to hvd.elastic.run."
    )
    return [tf.debugging.assert_equal(now, traced, message)]


def _value(what: str, process_set_id: int, name: str | None) -> tf.Tensor:
    if graph.compiling():
        raise NotImplementedError(
            f"hvd.{what}_op is not supported in a function compiled by XLA. Received: a call under jit_compile=True. "
            f"Use hvd.{what}(), or call it outside and pass the value in."
        )
    return loader.op_library().smddp_topology_value(what=what, process_set=process_set_id, name=name)

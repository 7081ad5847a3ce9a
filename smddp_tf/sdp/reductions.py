"""The collectives of `smdistributed.dataparallel.tensorflow`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import basics
from smddp_tf.collectives import emit, functions, graph, ops
from smddp_tf.collectives.reduce_op import Average, Max, Min, ReduceSpec, Sum, as_reduce_op
from smddp_tf.collectives.tensor_types import TensorLike
from smddp_tf.compression import AnyCompressor, Compression, split
from smddp_tf.sdp import gradient_lists

__all__ = [
    "ReduceOp", "allreduce", "broadcast", "broadcast_global_variables", "broadcast_variables",
    "oob_allreduce", "overlap",
]  # fmt: skip


class ReduceOp:
    """The operation that combines the values of all ranks: `hvd.Average`, `hvd.Sum`, `hvd.Min`, `hvd.Max`."""

    AVERAGE = Average
    SUM = Sum
    MIN = Min
    MAX = Max


@graph.no_autograph
def allreduce(
    tensor: TensorLike | tf.IndexedSlices | None = None,
    param_index: int = 0,
    num_params: int = 1,
    compression: AnyCompressor = Compression.none,
    op: int = ReduceOp.AVERAGE,
    *,
    grad: TensorLike | tf.IndexedSlices | None = None,
) -> Any:
    """Reduces one gradient of a list over all ranks; every rank gets the result.

    In a `tf.function` that XLA does not compile, the gradients of a list are reduced in buckets of the size that
    `smddpcommon.setBucketSize` sets: the ranks match their tensors by index and length of the list, whatever the order
    of the calls, compare shapes once, and send no names in the steps. Call it for each gradient of a step before using
    the results: a gradient that comes after a use shares no bucket with those before. In eager mode, and where XLA
    compiles, each call waits for its result.

    Example:

    >>> grads = [sdp.allreduce(grad, index, len(grads)) for index, grad in enumerate(grads)]

    Args:
        tensor: dense tensor, or `tf.IndexedSlices`. A None (a variable without a gradient) gives None; it is
            counted in `param_index` and `num_params` like the others.
        param_index: integer, the index in the list of gradients, the same on all ranks. Defaults to 0.
        num_params: integer, the length of that list. Defaults to 1.
        compression: `sdp.Compression.none`, `.fp16`, or a class with `compress` and `decompress`.
        op: a `ReduceOp`. Defaults to `ReduceOp.AVERAGE`.
        grad: another name for `tensor`.

    Returns:
        A tensor (or `tf.IndexedSlices`) with the shape and dtype of `tensor`; None for None.

    Raises:
        ValueError: `param_index` is not below `num_params`, or both `tensor` and `grad` are given.
    """
    if tensor is not None and grad is not None:
        raise ValueError("`tensor` and `grad` are two names for one argument. Received both.")
    tensor = grad if tensor is None else tensor
    index, count = operator.index(param_index), operator.index(num_params)
    if not 0 <= index < count:
        raise ValueError(
            "`param_index` counts the gradients from 0 to `num_params` - 1. "
            f"Received: param_index={param_index}, num_params={num_params}."
        )
    codec, wire_dtype = split(compression)
    basics.size()
    if tensor is None:
        return None
    name = f"sdp.allreduce.{index}/{count}"
    if isinstance(tensor, tf.IndexedSlices):
        return ops.allreduce(tensor, op=op, name=name)
    reduction = ReduceSpec(as_reduce_op(op), 1.0, 1.0, wire_dtype)
    compressed, ctx = codec.compress(tf.convert_to_tensor(tensor))
    reduced = gradient_lists.reduced(compressed, index, count, reduction, name)
    if reduced is None:
        reduced = emit.allreduce_list([compressed], reduction, graph.tensor_name("sdp.allreduce", name))[0]
    return codec.decompress(reduced, ctx)


@graph.no_autograph
def oob_allreduce(tensor: TensorLike, compression: AnyCompressor = Compression.none, op: int = ReduceOp.AVERAGE) -> Any:
    """Reduces values that are not gradients, such as losses and metrics; every rank gets the result.

    Example:

    >>> loss = sdp.oob_allreduce(loss)
    >>> loss, accuracy = sdp.oob_allreduce(model.evaluate(x, y))

    Args:
        tensor: tensor, number, array, or a list of numbers or of tensors of any shapes; the same on all ranks.
        compression: as for `allreduce`.
        op: a `ReduceOp`. Defaults to `ReduceOp.AVERAGE`, of integers too: it rounds toward zero and stays an integer.

    Returns:
        A tensor of the same shape and dtype (a list of numbers becomes a vector), or the list of reduced tensors where
        their shapes or dtypes differ.
    """
    if isinstance(tensor, (list, tuple)) and _differ(tensor):
        return ops.grouped_allreduce(tensor, compression=compression, op=op)
    return ops.allreduce(tensor, compression=compression, op=op)


def _differ(values: Sequence[Any]) -> bool:
    """True where the entries cannot be one tensor without losing something."""
    tensors = [value for value in values if tf.is_tensor(value) or isinstance(value, tf.Variable)]
    return len({(tuple(tensor.shape), tensor.dtype) for tensor in tensors}) > 1


def broadcast(tensor: TensorLike, root_rank: int) -> tf.Tensor:
    """Returns rank `root_rank`'s tensor on every rank, when all ranks have called it. See `hvd.broadcast`.

    Args:
        tensor: tensor, number or array; shape and dtype are the same on all ranks.
        root_rank: integer, the rank whose value all ranks get.

    Returns:
        A tensor of the same shape and dtype.
    """
    return ops.broadcast(tensor, root_rank)


def broadcast_variables(variables: Sequence[Any] | Callable[[], Sequence[Any]], root_rank: int) -> None:
    """Gives every rank the values that the variables have on rank `root_rank`. See `hvd.broadcast_variables`.

    Args:
        variables: list of variables (of a model, of an optimizer), in the same order on all ranks.
        root_rank: integer, the rank whose values all ranks get.
    """
    functions.broadcast_variables(variables() if callable(variables) else variables, root_rank)


def broadcast_global_variables(root_rank: int) -> Any:
    """`broadcast_variables` for all variables of a TensorFlow 1 graph.

    Args:
        root_rank: integer, the rank whose values all ranks get.

    Returns:
        The op that assigns the values, to be run in a session.

    Raises:
        RuntimeError: Eager execution is on, where there is no list of all variables.
    """
    return functions.broadcast_global_variables(root_rank)


def overlap(tensor: TensorLike) -> tf.Tensor:
    """Returns the tensor.

    In a `tf.function` gradients are reduced while others are computed, with or without this call. In a function that
    XLA compiles this holds for `DistributedGradientTape`, on CPUs and from TensorFlow 2.20 on. In eager mode they are
    not.

    Args:
        tensor: tensor of any shape and dtype.

    Returns:
        A tensor with the same value, shape and dtype.
    """
    return tf.identity(tensor)

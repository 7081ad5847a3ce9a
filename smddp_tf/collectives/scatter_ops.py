"""Collectives that split tensors along their rows. `smddp_tf.collectives.ops` has them together with the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.collectives import emit, graph
from smddp_tf.collectives.reduce_op import Average, ReduceSpec, Sum, as_reduce_op
from smddp_tf.collectives.tensor_types import TensorLike
from smddp_tf.compression import AnyCompressor, Compression, reduce_compressed, split
from smddp_tf.process_sets import ProcessSet, global_process_set


@graph.collective
def alltoall(
    tensor: TensorLike,
    splits: TensorLike | None = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Sends consecutive rows of a tensor to each rank, and returns the rows received from each, in rank order.

    Differentiable: each row of the gradient is sent back to the rank of its row.

    Example:
    >>> rows = tf.range(2 * hvd.size())
    >>> received, splits = hvd.alltoall(rows, splits=[2] * hvd.size())  # 2 ranks: [0, 1, 0, 1] and [2, 3, 2, 3]
    >>> splits.numpy().tolist() == [2] * hvd.size()
    True

    Args:
        tensor: tensor with at least one dimension. The first may differ between ranks (and may be 0), the others and
            the dtype must be the same.
        splits: int32 or int64, [size]; tensor, array or list. How many rows go to each rank: at least 0, with the
            first dimension as their sum. `None`: as many to each, which the first dimension must allow. Defaults to
            `None`.
        name: the name by which the ranks match this operation. Defaults to one made from the place in the graph.
        ignore_name_scope: has no effect: name scopes are never part of the name. Defaults to `False`.
        process_set: the ranks that take part. Defaults to all.

    Returns:
        A tensor of the rows received; with `splits` a tuple of it and an int32 tensor of shape [size], the rows that
        came from each rank.

    Raises:
        tf.errors.InvalidArgumentError: on every rank, where the splits of one do not fit its tensor.
    """
    tensor, sizes = with_rows(tensor, "alltoall"), None if splits is None else _as_splits(splits)
    received, received_splits = emit.alltoall_tensor(tensor, sizes, graph.tensor_name("alltoall", name))
    return received if splits is None else (received, received_splits)


@graph.collective
def reducescatter(
    tensor: TensorLike,
    device_dense: str = "",
    compression: AnyCompressor = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces a tensor over all ranks and gives each rank an equal part of the rows, in rank order.

    Where the rows do not divide, the first ranks get one more. Shape and dtype must be the same on all ranks. Between
    nodes it sends as much as an allreduce. Differentiable: the gradient is gathered from all ranks, and counts once
    for every rank where the reduction is a sum.

    Example:
    >>> hvd.reducescatter(tf.constant([1.0, 2.0, 3.0]), op=hvd.Sum)  # 2 ranks: [2.0, 4.0] and [6.0]

    Args:
        tensor: tensor with at least one dimension.
        device_dense: device for the op. Defaults to TensorFlow's choice.
        compression: how the tensor is sent; see `allreduce`. Defaults to `none`.
        op: `hvd.Average` or `hvd.Sum`. Defaults to Average.
        name: the name by which the ranks match this operation. Defaults to one made from the place in the graph.
        process_set: the ranks that take part. Defaults to all.
        ignore_name_scope: has no effect: name scopes are never part of the name. Defaults to `False`.
        prescale_factor: float. Multiplies the tensor before it is reduced. Defaults to 1.
        postscale_factor: float. Multiplies the result. Defaults to 1.

    Returns:
        A tensor like `tensor`, with this rank's rows.
    """
    reduction = _reduction(compression, op, prescale_factor, postscale_factor)
    name = graph.tensor_name("reducescatter", name)
    return _scatter([with_rows(tensor, "reducescatter")], device_dense, compression, reduction, name)[0]


@graph.collective
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: AnyCompressor = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduces and scatters several tensors together: as `reducescatter` of each, but they are reduced together.

    Args:
        tensors: list of tensors. The list must be the same on all ranks.
        device_dense: see `reducescatter`, like the arguments that follow; they hold for every tensor of the list.
        compression: how the tensors are sent.
        op: `hvd.Average` or `hvd.Sum`.
        process_set: the ranks that take part. Defaults to all.
        prescale_factor: float, multiplies each tensor before it is reduced.
        postscale_factor: float, multiplies each result.

    Returns:
        The list of results, in the order given.
    """
    reduction = _reduction(compression, op, prescale_factor, postscale_factor)
    name = graph.tensor_name("grouped_reducescatter", None)
    tensors = [with_rows(tensor, "grouped_reducescatter") for tensor in tensors]
    return _scatter(tensors, device_dense, compression, reduction, name) if tensors else []


def with_rows(tensor: TensorLike, what: str) -> tf.Tensor:
    """Converts to a tensor that has rows.

    Args:
        tensor: a value for `tf.convert_to_tensor`, of any dtype.
        what: the name of the calling function, for the error text.

    Returns:
        A tensor with at least one dimension, or of unknown rank.

    Raises:
        ValueError: it is a scalar.
    """
    tensor = tf.convert_to_tensor(tensor)
    if tensor.shape.rank == 0:
        raise ValueError(
            f"`{what}` works along the first dimension of tensors, so they need at least one. "
            f"Received a scalar: {tensor!r}. Use `tf.reshape(tensor, [1])` first."
        )
    return tensor


def _reduction(compression: AnyCompressor, op: int, prescale: float, postscale: float) -> ReduceSpec:
    return ReduceSpec(as_reduce_op(op, (Average, Sum)), prescale, postscale, split(compression)[1])


def _scatter(
    tensors: Sequence[tf.Tensor], device_dense: str, compression: AnyCompressor, reduction: ReduceSpec, name: str
) -> list[Any]:
    with graph.device_scope(device_dense):
        return reduce_compressed(lambda sent: emit.reducescatter_list(sent, reduction, name), tensors, compression)


def _as_splits(splits: TensorLike) -> tf.Tensor:
    if isinstance(splits, (list, tuple)):
        splits = tf.convert_to_tensor(splits, None if splits else tf.int64)
    splits = tf.convert_to_tensor(splits)
    if splits.dtype not in (tf.int32, tf.int64):
        raise TypeError(f"`splits` must be of dtype int32 or int64. Received: {splits!r}.")
    if splits.shape.rank not in (None, 1):
        raise ValueError(f"`splits` must have one dimension, an entry for each rank. Received: {splits!r}.")
    return splits

"""Collectives on tensors: in eager mode they block, in a `tf.function` they are ops that run in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.collectives import emit, graph, sparse
from smddp_tf.collectives import op_gradients as op_gradients  # registers the gradients
from smddp_tf.collectives.reduce_op import Adasum, Average, Max, Min, Product, ReduceSpec, Sum, resolve_average
from smddp_tf.collectives.scatter_ops import alltoall, grouped_reducescatter, reducescatter, with_rows
from smddp_tf.collectives.tensor_types import TensorLike
from smddp_tf.compression import AnyCompressor, Compression, reduce_compressed, split
from smddp_tf.process_sets import ProcessSet, global_process_set

__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum", "allgather", "allreduce", "alltoall", "barrier",
    "broadcast", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "join", "reducescatter",
]  # fmt: skip


@graph.collective
def allreduce(
    tensor: TensorLike | tf.IndexedSlices,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> tf.Tensor:
    """Reduces a tensor over all ranks; every rank gets the result.

    Shape and dtype must be the same on all ranks. Differentiable for Average, Sum and Adasum.

    Example:
    >>> hvd.allreduce(tf.constant([1.0, 2.0]) * (hvd.rank() + 1), op=hvd.Sum)  # 2 ranks: [3.0, 6.0]

    Args:
        tensor: a `tf.Tensor`, variable, or anything `tf.convert_to_tensor` takes; or `tf.IndexedSlices`, whose rows are
            collected from all ranks (repeated indices stay, but in an average of integers, where the rows of an index
            are added up and the sum is divided once).
        average: deprecated; `True` is `op=hvd.Average` and `False` is `op=hvd.Sum`.
        device_dense: device for the op on a dense tensor. Defaults to TensorFlow's choice.
        device_sparse: the same for `tf.IndexedSlices`.
        compression: how a dense tensor is sent: `hvd.Compression.none`, `.fp16`, `.bf16` (the engine narrows for
            sending and sums in float32), `.int8` (8-bit blocks between nodes), or a class with static methods
            `compress` and `decompress`. Defaults to `none`.
        op: `hvd.Average`, `Sum`, `Min`, `Max`, `Product`, or for floating dtypes `Adasum` (Maleki et al.,
            arXiv 2006.02924). Slices take only Average and Sum. Average of integers rounds toward zero. Defaults to
            Average.
        prescale_factor: float. Multiplies the tensor before it is reduced. Integers are multiplied in float64 and
            rounded toward zero. Not for slices. Defaults to 1.
        postscale_factor: float. Multiplies the result, in the same way. Defaults to 1.
        name: the name by which the ranks match this operation. Defaults to one made from the place in the graph.
        process_set: the ranks that take part. Defaults to all.
        ignore_name_scope: has no effect: name scopes are never part of the name. Defaults to `False`.

    Returns:
        A tensor like `tensor`, or `tf.IndexedSlices`.
    """
    reduction = ReduceSpec(resolve_average(op, average), prescale_factor, postscale_factor, split(compression)[1])
    name = graph.tensor_name("allreduce", name)
    return _allreduced([tensor], reduction, compression, name, (device_dense, device_sparse))[0]


@graph.collective
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Reduces several tensors together: cheaper than one by one, and none of them waits for a match of its own.

    Args:
        tensors: list of tensors, dense or `tf.IndexedSlices`. The list must be the same on all ranks.
        average: see `allreduce`, like the arguments that follow; they hold for every tensor of the list.
        device_dense: device for the op on the dense tensors.
        device_sparse: device for the ops on `tf.IndexedSlices`.
        compression: how the dense tensors are sent.
        op: the reduction. With Adasum each tensor is reduced by itself.
        prescale_factor: float, multiplies each tensor before it is reduced.
        postscale_factor: float, multiplies each result.
        process_set: the ranks that take part. Defaults to all.
        ignore_name_scope: makes no difference.
        name: the name by which the ranks match the list.

    Returns:
        The list of reduced tensors, in the order given.
    """
    reduction = ReduceSpec(resolve_average(op, average), prescale_factor, postscale_factor, split(compression)[1])
    name = graph.tensor_name("grouped_allreduce", name)
    return _allreduced(list(tensors), reduction, compression, name, (device_dense, device_sparse))


def _allreduced(
    tensors: list[Any], reduction: ReduceSpec, compression: AnyCompressor, name: str, devices: tuple[str, str]
) -> list[Any]:
    """Reduces dense tensors as one operation, on the first device, and slices as another, on the second."""
    rows = [index for index, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    dense = [index for index in range(len(tensors)) if index not in rows]
    if rows:
        sparse.check_slices(reduction)
    if dense:
        with graph.device_scope(devices[0]):
            given = [tf.convert_to_tensor(tensors[index]) for index in dense]
            reduced = reduce_compressed(lambda sent: emit.allreduce_list(sent, reduction, name), given, compression)
            tensors = sparse.replaced(tensors, dense, reduced)
    if rows:
        name = f"{name}.slices" if dense else name
        with graph.device_scope(devices[1]):
            slices = sparse.gather_slices([tensors[index] for index in rows], reduction, name)
            tensors = sparse.replaced(tensors, rows, slices)
    return tensors


@graph.collective
def allgather(
    tensor: TensorLike,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Concatenates the tensors of all ranks along the first dimension, in rank order.

    Differentiable: the gradient is averaged over the ranks, and each rank keeps the rows that came from it.

    Args:
        tensor: tensor with at least one dimension. The first may differ between ranks (and may be 0), the others and
            the dtype must be the same.
        name: the name by which the ranks match this operation. Defaults to one made from the place in the graph.
        ignore_name_scope: has no effect: name scopes are never part of the name. Defaults to `False`.
        process_set: the ranks that take part. Defaults to all.

    Returns:
        A tensor whose first dimension is the sum over all ranks.
    """
    return emit.allgather_list([with_rows(tensor, "allgather")], graph.tensor_name("allgather", name))[0]


@graph.collective
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Gathers several tensors together: as `allgather` of each, but the ranks agree once.

    Args:
        tensors: list of tensors. As many on all ranks, with the same dtypes.
        name: the name by which the ranks match the list.
        ignore_name_scope: makes no difference.
        process_set: the ranks that take part. Defaults to all.

    Returns:
        The list of gathered tensors, in the order given.
    """
    name = graph.tensor_name("grouped_allgather", name)
    tensors = [with_rows(tensor, "grouped_allgather") for tensor in tensors]
    return list(emit.allgather_list(tensors, name)) if tensors else []


@graph.collective
def broadcast(
    tensor: TensorLike,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Returns the tensor that rank `root_rank` passed, on every rank.

    Shape and dtype must be the same on all ranks. Differentiable: on the root the gradient is the mean of all ranks'
    gradients, elsewhere it is zero.

    Args:
        tensor: a tensor; its value matters on the root only.
        root_rank: integer, the rank whose value all ranks get. The same on all ranks.
        name: the name by which the ranks match this operation. Defaults to one made from the place in the graph.
        ignore_name_scope: has no effect: name scopes are never part of the name. Defaults to `False`.
        process_set: the ranks that take part. Defaults to all.

    Returns:
        A tensor like `tensor`.
    """
    return emit.broadcast_list([tf.convert_to_tensor(tensor)], root_rank, graph.tensor_name("broadcast", name))[0]


@graph.collective
def barrier(*, name: str | None = None, process_set: ProcessSet = global_process_set) -> tf.Operation | None:
    """Waits until every rank has called it.

    In a graph, ops that must run after it need `tf.control_dependencies([op])`; for ops that must run before it, call
    `barrier` inside such a block.

    Args:
        name: the name by which the ranks match this operation. Defaults to one made from the position in the graph.
        process_set: the ranks that take part. Defaults to all.

    Returns:
        The op in a graph; None in eager mode.
    """
    return emit.barrier(graph.tensor_name("barrier", name))


@graph.collective
def join(*, process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """Informs the other ranks that this one has no more data, and waits until all ranks have called it.

    Until then this rank takes part in every `allreduce` and every reduced gradient of the others with zeros, so that
    ranks with more batches can continue. `hvd.Average` still divides by the number of all ranks. Afterwards all ranks
    take part again, and another round may follow. Every rank must call it once in each round.

    Average and Sum only: `Min`, `Max`, `Product`, `allgather` (and so `tf.IndexedSlices`), `broadcast` and `barrier`
    raise an error on the ranks that ask while another one has joined.

    In a `tf.function` it runs after the collectives, loops and calls that were traced before it, and the collectives
    traced after it wait for it. A loop or a call after it needs `with tf.control_dependencies([last]):`.

    Example:
    >>> for batch in my_part_of_the_data:  # another number of batches on every rank
    ...     train_step(batch)
    >>> last = hvd.join()
    >>> hvd.broadcast_variables(model.variables, root_rank=int(last))

    Args:
        process_set: the ranks that wait for one another. Defaults to all.

    Returns:
        int32 scalar, the rank that joined last: it has seen all updates. The same on all ranks.
    """
    return emit.join(graph.tensor_name("join", None))

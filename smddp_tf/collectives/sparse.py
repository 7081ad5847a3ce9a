"""Reduces `tf.IndexedSlices`, the gradients of embeddings, over all ranks.

Rows of the same index are added up before anything travels, and again after it. So the result has each index once,
which optimizers need: Keras squares the rows of an `IndexedSlices` as they are, and the sum of squares of repeated rows
is not the square of their sum.

The rows are then reduced by one of two methods, the same on all ranks: an allgather of all ranks' rows, or, where those
would be more than the full table, an allreduce of the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.collectives import emit, run_time_values
from smddp_tf.collectives.reduce_op import Average, ReduceSpec, Sum
from smddp_tf.collectives.tensor_types import Gradient
from smddp_tf.compression import narrow

# A table of at most so many bytes is allreduced in full, without counting its rows.
SMALL_TABLE_BYTES = 64 << 10
# Gathering is chosen while the rows of all ranks are at most this part of the table. A gathered byte costs more than
# a reduced one: it is sorted out and added up in TensorFlow, by one thread. Measured with `benchmarks.sparse`.
GATHER_AT_MOST = 0.75


def check_slices(reduction: ReduceSpec) -> None:
    """Raises NotImplementedError for what is not defined on tf.IndexedSlices."""
    if reduction.op not in (Average, Sum):
        raise NotImplementedError(
            "tf.IndexedSlices can be reduced with hvd.Average and hvd.Sum only. "
            f"Received: op=hvd.{reduction.op.name}. Convert them first: tf.convert_to_tensor(slices)."
        )
    if reduction.prescale != 1.0 or reduction.postscale != 1.0:
        raise NotImplementedError(
            "`prescale_factor` and `postscale_factor` are not defined for tf.IndexedSlices. "
            f"Received: {reduction.prescale} and {reduction.postscale}. Multiply the values instead."
        )


def gather_slices(slices: Sequence[tf.IndexedSlices], reduction: ReduceSpec, name: str) -> list[tf.IndexedSlices]:
    """Gathers the rows of all ranks, for `hvd.allreduce`. Repeated indices stay, except in an average of integers.

    There each row would be rounded: 7 and 7 of two ranks are 7, not 3 + 3. So rows of an index are added first.
    """
    check_slices(reduction)
    emit.check_average([one.values for one in slices], reduction, name)
    gathered = emit.allgather_list([one.values for one in slices] + [one.indices for one in slices], name)
    results = []
    for values, indices, one in zip(gathered, gathered[len(slices) :], slices):
        result = tf.IndexedSlices(values, indices, dense_shape=one.dense_shape)
        if reduction.op == Average and values.dtype.is_integer:
            result = with_unique_indices(result)
        results.append(_averaged(result) if reduction.op == Average else result)
    return results


def _averaged(total: tf.IndexedSlices) -> Any:
    return mapped(lambda values: emit.divided(values, run_time_values.size()), total)


def mapped(function: Callable[[tf.Tensor], tf.Tensor], grad: Gradient) -> Any:
    """Returns `function(grad)`; of slices with their values changed; None for None."""
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(function(grad.values), grad.indices, grad.dense_shape)
    return None if grad is None else function(grad)


def replaced(grads: Sequence[Any], indices: Iterable[int], others: Iterable[Any]) -> list[Any]:
    """Returns `grads` with the elements at `indices` replaced by `others`, one for each index."""
    other_at = dict(zip(indices, others))
    return [other_at.get(index, grad) for index, grad in enumerate(grads)]


def is_small(slices: tf.IndexedSlices, shape: tf.TensorShape) -> bool:
    """True for a table that is better reduced in full, whatever the number of rows. The same on all ranks."""
    return _can_be_dense(slices, shape) and shape.num_elements() * slices.values.dtype.size <= SMALL_TABLE_BYTES


def densified(slices: tf.IndexedSlices, shape: tf.TensorShape) -> tf.Tensor:
    """Returns the full table. Rows of the same index are added."""
    if slices.dense_shape is None and shape.is_fully_defined():
        slices = tf.IndexedSlices(slices.values, slices.indices, dense_shape=tf.constant(shape.as_list(), tf.int64))
    return tf.convert_to_tensor(slices)


def all_rows(table: tf.Tensor, like: tf.IndexedSlices) -> tf.IndexedSlices:
    """A table as slices, in the type that the user's code expects."""
    indices = tf.range(tf.shape(table, out_type=like.indices.dtype)[0], dtype=like.indices.dtype)
    return tf.IndexedSlices(table, indices, like.dense_shape)


def with_unique_indices(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns the slices with each index once, in the order of first appearance; rows of the same index are added."""
    indices, position = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, position, tf.shape(indices)[0])
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def reduce_rows(
    slices_of: dict[int, tf.IndexedSlices], shapes: dict[int, tf.TensorShape], reduction: ReduceSpec, use: str
) -> dict[int, tf.IndexedSlices]:
    """Reduces gradients over all ranks; the results are slices whose indices occur once.

    Args:
        slices_of: the gradients, by their index in the list of all gradients; the same indices on all ranks.
        shapes: the shapes of their variables, as far as known.
        reduction: op (Average or Sum), factors, and the wire dtype to which the rows are narrowed on their way.
        use: the name under which the ranks match this use.

    Returns:
        The reduced gradients, by the same indices.
    """
    unique = {index: with_unique_indices(slices) for index, slices in slices_of.items()}
    choosers = [index for index, slices in unique.items() if _can_be_dense(slices, shapes[index])]
    rows_of_all = {}
    if choosers:
        # One number for each gradient, known long before the gradients are: it is sent while the model computes.
        rows = tf.stack([tf.shape(unique[index].indices, out_type=tf.int64)[0] for index in choosers])
        agreed = emit.allreduce_list([rows], ReduceSpec(Sum), f"{use}.rows")[0]
        rows_of_all = dict(zip(choosers, tf.unstack(agreed, len(choosers))))
    return {i: _reduced(one, shapes[i], reduction, f"{use}.{i}", rows_of_all.get(i)) for i, one in unique.items()}


def _reduced(
    slices: tf.IndexedSlices, shape: tf.TensorShape, reduction: ReduceSpec, name: str, rows_of_all: tf.Tensor | None
) -> tf.IndexedSlices:
    gather = functools.partial(_gathered, slices, reduction, name)
    if rows_of_all is None:
        return gather()

    def reduce_table() -> tf.IndexedSlices:
        return all_rows(emit.allreduce_list([densified(slices, shape)], reduction, f"{name}.table")[0], slices)

    result = tf.cond(rows_of_all <= _most_rows_to_gather(slices, shape), gather, reduce_table)
    return tf.IndexedSlices(result.values, result.indices, slices.dense_shape)


def _gathered(slices: tf.IndexedSlices, reduction: ReduceSpec, name: str) -> tf.IndexedSlices:
    """Gathers the rows of all ranks and adds them in the order of ranks. Narrowed rows are widened before."""
    values, dtype = emit.scaled(slices.values, reduction.prescale), slices.values.dtype
    if reduction.wire_dtype not in ("", "int8", "auto"):
        values, _ = narrow(values, tf.as_dtype(reduction.wire_dtype))
    all_slices = tf.IndexedSlices(
        tf.cast(emit.allgather_list([values], f"{name}.values")[0], dtype),
        emit.allgather_list([slices.indices], f"{name}.indices")[0],
        slices.dense_shape,
    )
    total = with_unique_indices(all_slices)
    if reduction.op == Average:
        total = _averaged(total)
    return mapped(lambda values: emit.scaled(values, reduction.postscale), total)


def _most_rows_to_gather(slices: tf.IndexedSlices, shape: tf.TensorShape) -> int:
    """Returns how many rows of all ranks together may be gathered. The same number on all ranks."""
    row_bytes = shape[1:].num_elements() * slices.values.dtype.size
    return int(GATHER_AT_MOST * shape[0] * row_bytes / (row_bytes + slices.indices.dtype.size))


def _can_be_dense(slices: tf.IndexedSlices, shape: tf.TensorShape) -> bool:
    """Checks for a shape that all ranks know, and a dtype in which both methods give the same result."""
    return bool(shape.is_fully_defined() and slices.values.dtype.is_floating)

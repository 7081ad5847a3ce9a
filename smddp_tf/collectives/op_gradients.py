"""The gradients of our ops. Importing this module registers them with TensorFlow.

Reading guide: the ranks' losses are taken as parts of one loss, so the gradient of a collective is a collective too,
and all ranks must ask for it together. The means follow Horovod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import process_sets
from smddp_tf.collectives import emit, graph, run_time_values, sparse, xla
from smddp_tf.collectives.reduce_op import Adasum, Average, ReduceSpec, Sum


def _gradient_of(op_type: str) -> Callable[[Callable[..., Any]], Any]:
    """Registers the gradient of an op, which runs in the scope of the op's process set."""
    return lambda gradient: tf.RegisterGradient(op_type)(process_sets.scoped_as_op(gradient))


@_gradient_of("SmddpAllreduce")
@_gradient_of("SmddpReduceGradient")
def _allreduce_gradient(op: tf.Operation, *grads: Any) -> list[tf.Tensor | None]:
    """Reduces the gradients as the forward op does: a scaled sum is linear and symmetric in the ranks.

    For Adasum, which is not linear, this follows Horovod.
    """
    return _reduce_present(grads, _reduction_of_gradient(op), _name_of_gradient(op))


@_gradient_of("SmddpBroadcast")
def _broadcast_gradient(op: tf.Operation, *grads: Any) -> list[tf.Tensor | None]:
    """Returns the mean over the ranks on the root, whose value all ranks used; zero elsewhere."""
    return _on_root(_reduce_present(grads, ReduceSpec(Average), _name_of_gradient(op)), op)


@_gradient_of("SmddpAllgather")
def _allgather_gradient(op: tf.Operation, *grads: Any) -> list[tf.Tensor | None]:
    """Returns the mean over the ranks of the rows that this rank contributed."""
    name = _name_of_gradient(op)
    reduced = _reduce_present(grads, ReduceSpec(Average), name)
    rows = tf.stack([tf.shape(tensor, out_type=tf.int64)[0] for tensor in op.inputs])
    rows_of_rank = emit.allgather_list([rows[tf.newaxis]], f"{name}.rows")[0]
    begin = tf.reduce_sum(rows_of_rank[: run_time_values.rank()], axis=0)
    return [
        None if grad is None else tf.ensure_shape(grad[begin[i] : begin[i] + rows[i]], tensor.shape)
        for i, (grad, tensor) in enumerate(zip(reduced, op.inputs))
    ]


@_gradient_of("SmddpAlltoall")
def _alltoall_gradient(op: tf.Operation, grad: tf.Tensor | tf.IndexedSlices, _: object) -> list[tf.Tensor | None]:
    """Every row of the gradient is sent back to the rank of the row."""
    returned, _ = emit.alltoall_tensor(tf.convert_to_tensor(grad), op.outputs[1], _name_of_gradient(op))
    return [tf.ensure_shape(returned, op.inputs[0].shape), None]


@_gradient_of("SmddpReducescatter")
def _reducescatter_gradient(op: tf.Operation, *grads: Any) -> list[tf.Tensor | None]:
    """Gathers the rows of all ranks' gradients, scaled as the tensor was; of a sum also by the number of ranks."""
    reduction = emit.reduction_of(op)
    factor = reduction.prescale * reduction.postscale
    tensors = [None if grad is None else emit.scaled(tf.convert_to_tensor(grad), factor) for grad in grads]
    if reduction.op == Sum:
        tensors = [sparse.mapped(lambda x: x * tf.cast(run_time_values.size(), x.dtype), each) for each in tensors]
    name = _name_of_gradient(op)
    gathered = _of_present(tensors, lambda present: emit.allgather_list(present, name))
    return [None if rows is None else tf.ensure_shape(rows, x.shape) for rows, x in zip(gathered, op.inputs)]


@_gradient_of(xla.OP_TYPE)
def _compiled_gradient(op: tf.Operation, *grads: Any) -> list[tf.Tensor | None]:
    """Equals the gradient of the op of that kind for plain graphs. Inputs that only keep the order have none."""
    kind, name = op.get_attr("kind").decode(), _name_of_gradient(op)
    tensors = list(op.inputs)[: len(op.outputs) - 1]
    grads = grads[: len(tensors)]
    reduction = _reduction_of_gradient(op) if kind in ("allreduce", "reduce_gradients") else ReduceSpec(Average)
    reduced = _reduce_present(grads, reduction, name, compiled=True)
    if kind == "broadcast":
        reduced = _on_root(reduced, op, compiled=True)
    if kind == "allgather":
        ranks = op.get_attr("gathered_ranks")
        reduced = [None if grad is None else _rows_of_this_rank(grad, tensors[0], ranks) for grad in reduced]
    return [*reduced, *[None] * (len(op.inputs) - len(tensors))]


def _on_root(grads: Sequence[tf.Tensor | None], op: tf.Operation, compiled: bool = False) -> list[tf.Tensor | None]:
    """The gradients on the root of a broadcast, zeros elsewhere.

    These are computed from the gradients on every rank: in a graph of TensorFlow 1 a rank runs only what its result
    needs, and a rank that left the reduction out would keep the others waiting.
    """
    is_root = tf.equal(tf.cast(run_time_values.global_rank(compiled), tf.int64), op.get_attr("root_rank"))
    return [None if grad is None else tf.where(is_root, grad, tf.zeros([], grad.dtype)) for grad in grads]


def _rows_of_this_rank(gathered: tf.Tensor, local: tf.Tensor, ranks: int) -> tf.Tensor:
    blocks = tf.reshape(gathered, tf.concat([[ranks], tf.shape(local)], 0))
    return tf.ensure_shape(tf.gather(blocks, run_time_values.rank(compiled=True)), local.shape)


def _reduce_present(
    grads: Sequence[Any], reduction: ReduceSpec, name: str, compiled: bool = False
) -> list[tf.Tensor | None]:
    """Reduces the existing gradients in one op; outputs of integer dtype have none."""
    return _of_present(grads, lambda tensors: emit.allreduce_list(tensors, reduction, name, compiled))


def _of_present(grads: Sequence[Any], emit_one: Callable[[list[tf.Tensor]], list[tf.Tensor]]) -> list[tf.Tensor | None]:
    """Returns the results of one op for the existing gradients, in their places."""
    present = [index for index, grad in enumerate(grads) if grad is not None]
    tensors = [tf.convert_to_tensor(grads[index]) for index in present]
    return sparse.replaced(grads, present, emit_one(tensors) if tensors else [])


def _name_of_gradient(op: tf.Operation) -> str:
    return graph.unique_name(op.get_attr("tensor_name").decode() + ".gradient")


def _reduction_of_gradient(op: tf.Operation) -> ReduceSpec:
    reduction = emit.reduction_of(op)
    if reduction.op not in (Adasum, Average, Sum):
        raise LookupError(
            f"hvd.{reduction.op.name} has no gradient; only hvd.Average, Sum and Adasum do. Received: a gradient "
            f"through '{op.get_attr('tensor_name').decode()}'. Reduce outside the tape, or wrap it in "
            "`tf.stop_gradient`."
        )
    return reduction

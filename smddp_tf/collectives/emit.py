"""Emits the native ops, one function for each. The names passed in are final (see `graph.tensor_name`)."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import process_sets
from smddp_tf._native import loader
from smddp_tf.collectives import graph, xla
from smddp_tf.collectives.reduce_op import Adasum, Average, ReduceOp, ReduceSpec, Sum
from smddp_tf.collectives.root_ranks import checked_root

_PLANNABLE = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_REDUCIBLE = (*_PLANNABLE, tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64, tf.bool)
_MOVABLE = (*_REDUCIBLE, tf.uint32, tf.uint64, tf.complex64, tf.complex128)


def allreduce_list(
    tensors: Sequence[tf.Tensor], reduction: ReduceSpec, name: str, compiled: bool = False
) -> list[tf.Tensor]:
    """Emits one SmddpAllreduce for all `tensors`.

    This and the other functions here emit the op for XLA instead where a function is traced that XLA will compile, or
    with `compiled`: the gradient of such a function is compiled too, but traced outside.
    """
    _check_reduction("allreduce", tensors, reduction, name)
    return _collective("allreduce", tensors, name, compiled, **_attributes_of(reduction))


def _collective(
    kind: str, tensors: Sequence[tf.Tensor], name: str, compiled: bool = False, **attributes: Any
) -> list[tf.Tensor]:
    if compiled or graph.compiling():
        return xla.collective(kind, tensors, name, **attributes)
    emit = getattr(loader.op_library(), f"smddp_{kind}")
    return graph.run_independently(emit(tensors=list(tensors), **_addressed(name), **attributes))


def register_plan(key: str, dtypes: Sequence[str], shapes: Sequence[Any], reduction: ReduceSpec, **more: Any) -> int:
    """Registers a plan for the current process set.

    Args:
        key: the name by which the ranks match it.
        dtypes: of its tensors.
        shapes: of its tensors, each a list of integers.
        reduction: of all of them.
        more: `notes`, `names`, `kind` and `parts`; see `_core.register_plan`.

    Returns:
        The number of the plan.
    """
    spec, process_set = reduction._asdict(), process_sets.current()
    return int(loader.core().register_plan(key, dtypes, shapes, **spec, process_set=process_set, **more))


def reduce_by_plan(
    tensors: Mapping[int, tf.Tensor], reduction: ReduceSpec, key: str, parts: int, compiled: bool, **more: Any
) -> dict[int, tf.Tensor]:
    """Registers a plan for the tensors of one traced step and emits the ops that reduce them.

    Args:
        tensors: by their indices in the list of gradients, of types and shapes that `is_plannable` admits.
        reduction: of all of them.
        key: the name by which the ranks match the plan.
        parts: if more than 1, and where XLA does not compile, each rank gets only its shard of each sum.
        compiled: bool, whether XLA will compile the function that is traced.
        more: `notes` and `names`; see `_core.register_plan`.

    Returns:
        The results, by the same indices.
    """
    if not tensors:
        return {}
    in_parts = parts > 1 and not compiled
    dtypes, shapes = zip(*((tensor.dtype.name, tensor.shape.as_list()) for tensor in tensors.values()))
    more.update({"kind": "reduce_parts", "parts": parts} if in_parts else {})
    plan = register_plan(key, dtypes, shapes, reduction, **more)
    if compiled:  # one op for all of them: an op each might wait for one that XLA runs after it
        attributes = {"plan": plan, "indices": list(range(len(tensors))), **_attributes_of(reduction)}
        return dict(zip(tensors, xla.collective("reduce_gradients", list(tensors.values()), key, **attributes)))
    emit_one = functools.partial(reduce_part, parts=parts) if in_parts else reduce_gradient
    return {
        index: emit_one(tensor, plan, position, reduction, key, f"{key}.{index}")
        for position, (index, tensor) in enumerate(tensors.items())
    }


def reduce_gradient(tensor: tf.Tensor, plan: int, index: int, reduction: ReduceSpec, key: str, name: str) -> tf.Tensor:
    """Emits one SmddpReduceGradient. Not for eager mode: it waits for the other tensors of its bucket.

    `reduction` and `key` are what the plan was registered with; the op keeps the first for its own gradient. `name` is
    for messages only.
    """
    return _planned("reduce_gradient", tensor, plan, index, reduction, key, name)


def set_plan(op: tf.Operation, plan: int, index: int, key: str) -> None:
    """Gives an op that `reduce_gradient` has emitted another plan. Only while its graph is being traced."""
    for name, value in (("plan", {"i": plan}), ("index", {"i": index}), ("plan_key", {"s": key.encode()})):
        op._set_attr(name, tf.compat.v1.AttrValue(**value))


def reduce_part(
    tensor: tf.Tensor, plan: int, index: int, reduction: ReduceSpec, key: str, name: str, parts: int
) -> tf.Tensor:
    """Emits one SmddpReducePart, by a plan of kind "reduce_parts". The result is this rank's shard, flat and padded."""
    where = {"parts": parts, "place": _shard_index(parts), "shape": [part_length(tensor.shape.num_elements(), parts)]}
    return _planned("reduce_part", tensor, plan, index, reduction, key, name, **where)


def part_length(elements: int, parts: int) -> int:
    """Returns the padded length of the parts of a tensor, as in tf_ops/core/slice.h: a multiple of 16."""
    return -(-elements // (16 * parts)) * 16


def gather_part(
    tensor: tf.Tensor, plan: int, index: int, shape: Sequence[int], key: str, name: str, parts: int
) -> tf.Tensor:
    """Emits one SmddpGatherPart, by a plan of kind "gather_parts". The result is the full tensor, of `shape`."""
    where = {"parts": parts, "place": _shard_index(parts), "shape": shape}
    return _planned("gather_part", tensor, plan, index, ReduceSpec(Sum), key, name, **where)


def _shard_index(parts: int) -> int:
    return int(loader.core().places_in_parts(process_sets.current(), parts)[process_sets.current_rank()])


def _planned(
    kind: str, tensor: tf.Tensor, plan: int, index: int, reduction: ReduceSpec, key: str, name: str, **more: Any
) -> tf.Tensor:
    emit, where = getattr(loader.op_library(), f"smddp_{kind}"), {"plan": plan, "index": index, "plan_key": key}
    output = emit(gradient=tensor, **_addressed(name), **where, **_attributes_of(reduction), **more)
    return graph.run_independently([output])[0]


def reducescatter_list(tensors: Sequence[tf.Tensor], reduction: ReduceSpec, name: str) -> list[tf.Tensor]:
    """Emits one SmddpReducescatter for all `tensors`; for XLA, which must know all shapes, an allreduce and a slice."""
    _check_reduction("reducescatter", tensors, reduction, name)
    if not graph.compiling():
        return _collective("reducescatter", tensors, name, **_attributes_of(reduction))
    size, rank = process_sets.current_size(), process_sets.current_rank()
    # As op_gradients.py has it.
    tensors = [gradient_times(tensor, size) if tensor.dtype.is_floating else tensor for tensor in tensors]
    fixed = {"gathered_ranks": size, "traced_rank": rank}  # an error in a later session with other ranks
    results = []
    for tensor in xla.collective("allreduce", tensors, name, **fixed, **_attributes_of(reduction)):
        rows, rest = divmod(tensor.shape[0], size)
        begin = rows * rank + min(rank, rest)
        results.append(tensor[begin : begin + rows + (rank < rest)])
    return results


def allgather_list(tensors: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Emits one SmddpAllgather for all `tensors`.

    For XLA one for each, whose results have the shapes that equal shapes on all ranks give.
    """
    _check_dtypes("allgather", tensors, _MOVABLE)
    if graph.compiling():
        names = [name] if len(tensors) == 1 else [f"{name}.{index}" for index in range(len(tensors))]
        ranks = process_sets.current_size()
        return [xla.collective("allgather", [each], one, gathered_ranks=ranks)[0] for each, one in zip(tensors, names)]
    return _collective("allgather", tensors, name)


def alltoall_tensor(tensor: tf.Tensor, splits: tf.Tensor | None, name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Emits one SmddpAlltoall; returns what was received, and the rows from each rank. Without splits all are equal."""
    _check_dtypes("alltoall", [tensor], _MOVABLE)
    _refuse_compiling("hvd.alltoall", name, "must know the shapes of all results beforehand")
    even = splits is None
    splits = tf.zeros([0], tf.int64) if splits is None else tf.cast(splits, tf.int64)
    outputs = loader.op_library().smddp_alltoall(tensor=tensor, splits=splits, even_split=even, **_addressed(name))
    graph.run_independently([outputs.received])
    return outputs.received, outputs.received_splits


def broadcast_list(tensors: Sequence[tf.Tensor], root_rank: int, name: str) -> list[tf.Tensor]:
    """Emits one SmddpBroadcast for all `tensors`."""
    _check_dtypes("broadcast", tensors, _MOVABLE)
    return _collective("broadcast", tensors, name, root_rank=checked_root(root_rank))


def barrier(name: str) -> tf.Operation | None:
    """Emits one SmddpBarrier, in program order with the other stateful ops of a graph.

    Args:
        name: the name by which the ranks match the barrier.

    Returns:
        The op in a graph; None in eager mode, after all ranks have come to it.

    Raises:
        NotImplementedError: XLA compiles the function.
    """
    _refuse_compiling("hvd.barrier", name, "keeps no order between ops that pass no tensors to each other")
    return loader.op_library().smddp_barrier(**_addressed(name))


def join(name: str) -> tf.Tensor:
    """Emits one SmddpJoin, ordered between the collectives traced before it and those traced after it.

    Args:
        name: the name by which the ranks match the join.

    Returns:
        Scalar tensor, the last rank that joined.

    Raises:
        NotImplementedError: XLA compiles the function.
    """
    _refuse_compiling("hvd.join", name, "would run it in an order of its own", "after")
    with tf.control_dependencies(graph.collectives_so_far()):
        last = loader.op_library().smddp_join(**_addressed(name))
    graph.let_wait_for(last)
    return last


def _refuse_compiling(what: str, name: str, why: str, when: str = "before or after") -> None:
    if graph.compiling():
        raise NotImplementedError(
            f"{what} is not supported in a function compiled by XLA, which {why}. "
            f"Received: {what} '{name}' under jit_compile=True. Call it {when} the compiled function."
        )


def scaled(tensor: tf.Tensor, factor: float) -> tf.Tensor:
    """Multiplies a tensor in its dtype; integers by way of float64, rounded toward zero.

    Args:
        tensor: tensor of any shape.
        factor: float.

    Returns:
        A tensor of the same shape and dtype.
    """
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_integer:
        return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)
    return tensor * tf.cast(factor, tensor.dtype)


def gradient_times(tensor: tf.Tensor, factor: tf.Tensor | float) -> tf.Tensor:
    """Returns `tensor`, whose gradient is multiplied by `factor`; zeros where that is 0, also for infinities."""

    @tf.custom_gradient
    def same(x: tf.Tensor) -> Any:
        return tf.identity(x), lambda grad: tf.math.multiply_no_nan(grad, tf.cast(factor, grad.dtype))

    return same(tensor)


def divided(tensor: tf.Tensor, by: tf.Tensor | int) -> tf.Tensor:
    """`tensor / by` in the tensor's dtype; integers are rounded toward zero, as in the engine.

    `by` is what `run_time_values.size` returns.
    """
    if isinstance(by, int) and by == 1:
        return tensor
    wide = tf.int64 if tensor.dtype.is_integer else tf.float32 if tensor.dtype.size == 2 else tensor.dtype
    divide = tf.truncatediv if tensor.dtype.is_integer else tf.divide
    return tf.cast(divide(tf.cast(tensor, wide), tf.cast(by, wide)), tensor.dtype)


def is_plannable(tensor: tf.Tensor) -> bool:
    """True when a tensor can be part of a plan: a floating dtype, and a shape known before it runs."""
    return tensor.dtype in _PLANNABLE and tensor.shape.is_fully_defined()


def reduction_of(op: tf.Operation) -> ReduceSpec:
    """Reads back what `allreduce_list` or `reduce_gradient` wrote into an op."""
    return ReduceSpec(
        ReduceOp(op.get_attr("reduce_op")),
        _float64_from_bits(op.get_attr("prescale_bits")),
        _float64_from_bits(op.get_attr("postscale_bits")),
        op.get_attr("wire_dtype").decode(),
    )


def _addressed(name: str) -> dict[str, Any]:
    """Returns the attributes of every op: the name by which the ranks match it, and the process set."""
    return {"tensor_name": name, "process_set": process_sets.current()}


def _attributes_of(reduction: ReduceSpec) -> dict[str, Any]:
    return {
        "reduce_op": int(reduction.op),
        "prescale_bits": _float64_bits(reduction.prescale),
        "postscale_bits": _float64_bits(reduction.postscale),
        "wire_dtype": reduction.wire_dtype,
    }


# An attribute of type float has 32 bits; one of type int has 64, which hold a float64 without loss.
def _float64_bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", float(value)))[0])


def _float64_from_bits(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def _check_reduction(what: str, tensors: Sequence[tf.Tensor], reduction: ReduceSpec, name: str) -> None:
    _check_dtypes(what, tensors, _PLANNABLE if reduction.op == Adasum else _REDUCIBLE)
    check_average(tensors, reduction, name)


def check_average(tensors: Sequence[tf.Tensor], reduction: ReduceSpec, name: str) -> None:
    """Raises TypeError for an average that is not defined."""
    if reduction.op == Average and any(tensor.dtype == tf.bool for tensor in tensors):
        raise TypeError(
            "bool tensors have no average. Expected: op=hvd.Max (true on any rank) or hvd.Min (true on all ranks), "
            f"or a cast to float32 first. Received: op=hvd.Average for '{name}'."
        )


def _check_dtypes(what: str, tensors: Sequence[tf.Tensor], allowed: Sequence[tf.DType]) -> None:
    for tensor in tensors:
        if tensor.dtype not in allowed:
            names = ", ".join(dtype.name for dtype in allowed)
            raise TypeError(
                f"`{what}` takes tensors of dtype {names}. Received: a tensor of dtype {tensor.dtype.name} and shape "
                f"{tensor.shape}. Cast it first, or use `hvd.broadcast_object` / `hvd.allgather_object` for other data."
            )

"""Reduces the gradients of a training step, for the tape and the optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf import process_sets
from smddp_tf._native.threads import of_thread
from smddp_tf.collectives import emit, graph, run_time_values, sparse
from smddp_tf.collectives.reduce_op import Adasum, Average, ReduceOp, ReduceSpec, Sum, as_reduce_op
from smddp_tf.collectives.tensor_types import Gradient
from smddp_tf.compression import NoneCompressor, split
from smddp_tf.gradients.options import DEFAULTS, ReduceOptions


class _Use(NamedTuple):
    """One list of gradients that is reduced.

    Attributes:
        key: the name under which the ranks match it.
        notes: about the gradients that are not dense; the ranks compare them with the plan.
        names: of the variables, for the timeline.
        may_plan: whether gradients of known shapes are reduced by plan.
        is_compiled: whether XLA will compile the function that is traced.
    """

    key: str
    notes: list[str]
    names: list[str]
    may_plan: bool
    is_compiled: bool


class GradientReducer:
    """Replaces a list of gradients by their mean (or sum) over all ranks.

    In a graph, the list becomes a *plan*, which the ranks compare once: no names travel per step, and each gradient is
    an op of its own, so that its bucket is sent while the backward pass computes the next. In eager mode all dense
    gradients are reduced in one blocking operation. `tf.IndexedSlices` remain slices, with each index once: their rows
    are gathered from all ranks or reduced as a full table, whichever is less (see `sparse`). In a function compiled by
    XLA (`jit_compile=True`) the whole plan is one op, and slices become dense.

    Every rank must call it with the same list: the same gradients present, of the same dtypes and shapes.

    Args:
        key: the name of the plan, the same on all ranks. Reducers of one key are distinguished by their gradients, and
            by their positions in the graph.
        options: how to reduce. Rows that are gathered are narrowed by `compression` too, but not by a user's
            compressor. The ranks outside of `process_set` keep their gradients.
        ops: what `options.op` may be. Adasum has no plans: each gradient is then matched by its name. Defaults to
            Average and Sum.
        repeated_rows: bool, keeps rows of the same index apart, as one process that has the rows of all ranks. They are
            gathered, also for XLA, where all ranks must have equally many. Defaults to `False`.
        parts: int. If more than 1, and in plain graphs, each rank gets only its shard of each sum: a flat tensor, one
            of `parts` of equal length, padded with zeros (`smddp_tf.keras.sharding.shards`). Elsewhere it gets the
            full sum, as with 1, the default.

    Attributes:
        keeps_float32: True where a float32 scalar among the gradients has its sum or mean, up to one rounding of
            float32.

    Raises:
        ValueError: `op`, `compression` or `gradient_predivide_factor` is not what it must be.
    """

    def __init__(
        self,
        key: str,
        options: ReduceOptions = DEFAULTS,
        ops: tuple[ReduceOp, ...] = (Average, Sum),
        repeated_rows: bool = False,
        parts: int = 1,
    ) -> None:
        op, factor = as_reduce_op(options.op, ops), options.gradient_predivide_factor
        _check_predivide(factor, op)
        self._codec, wire_dtype = split(options.compression)
        self._reduction = ReduceSpec(op, 1.0 / factor, factor, wire_dtype)
        self._key, self._options = key, options
        self._repeated_rows, self._parts = repeated_rows, parts
        is_narrowed = self._codec is not NoneCompressor or wire_dtype
        self.keeps_float32 = not is_narrowed and op != Adasum and parts == 1

    @graph.no_autograph
    def __call__(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the reduced gradients in the same order. A None stays a None.

        Args:
            grads: list of `tf.Tensor`, `tf.IndexedSlices` or None.
            variables: the variables of the gradients; their shapes are used where a gradient's shape is not known.
        """
        number = process_sets.id_of(self._options.process_set)
        if not process_sets.is_process_set_included(number):  # an error before init
            return run_time_values.while_outside(number, list(grads))
        with process_sets.scope(number):
            is_alone, compiled = graph.is_alone(), graph.compiling()
            key = "" if is_alone else graph.unique_name(of_thread(self._key), "#")
            may_plan = self._reduction.op != Adasum and not graph.is_for_session()
            results = self._inputs(grads, variables, is_alone, compiled)
            if is_alone:
                return [self._alone(grad) for grad in results]
            names = [_name_of(variable) for variable in variables]
            use = _Use(key, _notes_on_the_rest(results, variables), names, may_plan, compiled)
            return self._reduced(grads, variables, dict(enumerate(results)), use)

    def _reduced(self, grads: Sequence[Any], variables: Sequence[Any], results: dict[int, Any], use: _Use) -> list[Any]:
        dense = {i: g for i, g in results.items() if g is not None and not isinstance(g, tf.IndexedSlices)}
        slices_of = {index: grad for index, grad in enumerate(grads) if isinstance(grad, tf.IndexedSlices)}
        with graph.device_scope(self._options.device_dense):
            results.update(self._reduce_dense(dense, use))
        if slices_of:
            with graph.device_scope(self._options.device_sparse):
                results.update(self._reduce_slices(slices_of, results, variables, use))
        return list(results.values())

    def _inputs(self, grads: Sequence[Any], variables: Sequence[Any], is_alone: bool, compiled: bool) -> list[Any]:
        grads, variables = list(grads), list(variables)
        has_slices = any(isinstance(grad, tf.IndexedSlices) for grad in grads)
        if self._reduction.op == Adasum and not self._options.sparse_as_dense and has_slices:
            sparse.check_slices(self._reduction)
        if len(grads) != len(variables):
            raise ValueError(
                "Expected one gradient (or None) for each variable. "
                f"Received: {len(grads)} gradients and {len(variables)} variables."
            )
        return [self._input(grad, tf.TensorShape(v.shape), is_alone, compiled) for grad, v in zip(grads, variables)]

    def _input(self, grad: Gradient, shape: tf.TensorShape, is_alone: bool, compiled: bool) -> Any:
        if grad is None:
            return None
        if isinstance(grad, tf.IndexedSlices):
            if self._repeated_rows:
                return grad
            small = not is_alone and sparse.is_small(grad, shape)
            return sparse.densified(grad, shape) if self._options.sparse_as_dense or compiled or small else grad
        grad = tf.convert_to_tensor(grad)
        if shape.is_fully_defined() and not grad.shape.is_fully_defined():
            return tf.ensure_shape(grad, shape)
        return grad

    def _alone(self, grad: tf.Tensor | tf.IndexedSlices) -> Any:
        """Returns the Average or Sum of a gradient over one rank: the gradient, with each index once."""
        is_repeated = isinstance(grad, tf.IndexedSlices) and not self._repeated_rows
        return sparse.with_unique_indices(grad) if is_repeated else grad

    def _reduce_slices(
        self, slices_of: dict[int, tf.IndexedSlices], results: dict[int, Any], variables: Sequence[Any], use: _Use
    ) -> dict[int, tf.IndexedSlices]:
        """Reduces the remaining slices, and converts gradients that were reduced as small tables to slices again."""
        if self._repeated_rows:
            gathered = sparse.gather_slices(list(slices_of.values()), ReduceSpec(self._reduction.op), f"{use.key}.rows")
            return dict(zip(slices_of, gathered))
        shapes = {index: tf.TensorShape(variables[index].shape) for index in slices_of}
        travel = {index: grad for index, grad in slices_of.items() if isinstance(results[index], tf.IndexedSlices)}
        reduced = sparse.reduce_rows(travel, shapes, self._reduction, use.key)
        if not self._options.sparse_as_dense and not use.is_compiled:
            small = {index: grad for index, grad in slices_of.items() if index not in travel}
            reduced.update({index: sparse.all_rows(results[index], grad) for index, grad in small.items()})
        return reduced

    def _reduce_dense(self, dense: dict[int, tf.Tensor], use: _Use) -> dict[int, tf.Tensor]:
        if not dense:
            return {}
        if self._codec is NoneCompressor:
            return self._reduce_tensors(dense, use)
        packed = {index: self._codec.compress(tensor) for index, tensor in dense.items()}
        reduced = self._reduce_tensors({index: tensor for index, (tensor, _) in packed.items()}, use)
        return {index: self._codec.decompress(tensor, packed[index][1]) for index, tensor in reduced.items()}

    def _reduce_tensors(self, tensors: dict[int, tf.Tensor], use: _Use) -> dict[int, tf.Tensor]:
        if not tf.executing_eagerly():
            return self._reduce_in_graph(tensors, use)
        # The name carries the notes: ranks that differ in them wait, with a stall warning, and mix no gradients.
        name = ", ".join([use.key, *use.notes])
        return dict(zip(tensors, emit.allreduce_list(list(tensors.values()), self._reduction, name)))

    def _reduce_in_graph(self, tensors: dict[int, tf.Tensor], use: _Use) -> dict[int, tf.Tensor]:
        """Reduces gradients of known shape by plan, the others by name; by name also all in graphs of TensorFlow 1.

        A session may run any part of such a graph, and a plan needs all of its gradients.
        """
        planned = {i: tensor for i, tensor in tensors.items() if use.may_plan and emit.is_plannable(tensor)}
        about = {"notes": use.notes, "names": [use.names[index] for index in planned]}
        reduced = emit.reduce_by_plan(planned, self._reduction, use.key, self._parts, use.is_compiled, **about)
        for index, tensor in tensors.items():
            if index not in planned:
                reduced[index] = emit.allreduce_list([tensor], self._reduction, f"{use.key}.{index}")[0]
        return reduced


def _name_of(variable: object) -> str:
    """Returns Keras's path of a variable, or its name; "" where it has neither."""
    return str(getattr(variable, "path", None) or getattr(variable, "name", None) or "")


def _notes_on_the_rest(grads: Sequence[Any], variables: Sequence[Any]) -> list[str]:
    """Returns a line for every gradient that is not dense: the ranks compare them with the plan."""
    notes = []
    for index, (grad, variable) in enumerate(zip(grads, variables)):
        if grad is None:
            notes.append(f"gradient {index}: none")
        elif isinstance(grad, tf.IndexedSlices):
            notes.append(f"gradient {index}: rows of {tf.TensorShape(variable.shape)}")
    return notes


def _check_predivide(factor: float, op: int) -> None:
    if factor == 1.0:
        return
    if op != Average:
        raise ValueError(
            "`gradient_predivide_factor` splits the division of an average, so it needs op=hvd.Average. "
            f"Received: gradient_predivide_factor={factor}, op={op!r}."
        )
    if not factor > 0.0:
        raise ValueError(f"`gradient_predivide_factor` must be positive. Received: {factor}.")

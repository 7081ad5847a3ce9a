"""The one place that reduces the gradients of a training step; tape and optimizer both use it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import process_sets
from smddp_tf._native import loader
from smddp_tf._native.threads import of_thread
from smddp_tf._warn import warn
from smddp_tf.collectives import emit, graph, run_time_values, sparse, xla
from smddp_tf.collectives.reduce_op import Adasum, Average, ReduceOp, ReduceSpec, Sum, as_reduce_op
from smddp_tf.compression import Compression, NoneCompressor, split
from smddp_tf.process_sets import ProcessSet, global_process_set

_OF_USERS = (
    "op", "compression", "sparse_as_dense", "gradient_predivide_factor", "device_dense", "device_sparse", "process_set",
)  # fmt: skip


def settings_in(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments of a tape or of an optimizer that a `GradientReducer` takes."""
    return {name: arguments[name] for name in _OF_USERS}


class GradientReducer:
    """Replaces a list of gradients by their mean (or sum) over all ranks.

    In a graph, the list becomes a *plan*, which the ranks compare once: no names travel per step, and each gradient is
    an op of its own, so that its bucket travels while the backward pass computes the next. In eager mode all dense
    gradients travel in one blocking operation. `tf.IndexedSlices` stay what they are, with each index once: their rows
    are gathered from all ranks or travel as a whole table, whichever is less (see `sparse`). In a function compiled by
    XLA (`jit_compile=True`) the whole plan is one op, and slices become dense.

    Every rank must call it with the same list: the same gradients present, of the same dtypes and shapes.

    Args:
        key: the name of the plan, the same on all ranks. Reducers of one key are told apart by their gradients, and by
            their places in the graph.
        op: one of `ops`. Defaults to `Average`.
        ops: what `op` may be. Adasum has no plans: each gradient is then matched by its name. Defaults to Average and
            Sum.
        compression: see `hvd.allreduce`. Rows that are gathered are narrowed too, but pass by a compressor of
            your own. Defaults to `Compression.none`.
        sparse_as_dense: bool, turns `tf.IndexedSlices` into dense tensors first. Defaults to `False`.
        prescale_factor: float, multiplies each gradient before it is reduced. Defaults to 1.
        postscale_factor: float, multiplies the result. Defaults to 1.
        gradient_predivide_factor: float, splits the division of an average: by this factor before the sum, by
            size / factor after it. For Average only. Defaults to 1.
        device_dense: device for the ops on dense gradients. Defaults to TensorFlow's choice.
        device_sparse: the same for `tf.IndexedSlices`.
        process_set: the ranks that reduce; on the others gradients pass through. Defaults to all.
        repeated_rows: bool, keeps rows of the same index apart, as one process that has the rows of all ranks. They are
            gathered, also for XLA, where all ranks must have equally many. Defaults to `False`.
        parts: int. If more than 1, and in plain graphs, each rank gets its part only of each sum: a flat tensor, one of
            `parts` equal ones, filled up with zeros (`smddp_tf.keras.sharding.flat_part`). Elsewhere it gets the whole
            sum, as with 1, the default.
    """

    def __init__(
        self,
        key: str,
        *,
        op: int = Average,
        ops: tuple[ReduceOp, ...] = (Average, Sum),
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        gradient_predivide_factor: float = 1.0,
        device_dense: str = "",
        device_sparse: str = "",
        process_set: ProcessSet = global_process_set,
        repeated_rows: bool = False,
        parts: int = 1,
    ) -> None:
        op = as_reduce_op(op, ops)
        _check_predivide(gradient_predivide_factor, op)
        self._key = key
        self._codec, wire_dtype = split(compression)
        self._reduction = ReduceSpec(
            op, prescale_factor / gradient_predivide_factor, postscale_factor * gradient_predivide_factor, wire_dtype
        )
        self._scale_alone = prescale_factor * postscale_factor
        self._sparse_as_dense = sparse_as_dense
        self._repeated_rows = repeated_rows
        self._device_dense = device_dense
        self._device_sparse = device_sparse
        self._process_set = process_set
        self._parts = parts
        self._names: list[str] = []  # of the variables of the list that is being traced, for the timeline

    @property
    def keeps_float32(self) -> bool:
        """True where a float32 scalar among the gradients has its sum or mean, up to one rounding of float32."""
        narrows = self._codec is not NoneCompressor or self._reduction.wire_dtype
        return not narrows and self._reduction.op != Adasum and self._parts == 1

    @graph.no_autograph
    def __call__(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the reduced gradients in the same order. A None stays a None.

        Args:
            grads: list of `tf.Tensor`, `tf.IndexedSlices` or None.
            variables: what they are the gradients of; tells shapes that the gradients themselves do not know.
        """
        number = process_sets.id_of(self._process_set)
        if not process_sets.is_process_set_included(number):  # an error before init
            return run_time_values.while_outside(number, list(grads))
        with process_sets.scope(number):
            return self._reduced(grads, variables)

    def _reduced(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        if self._reduction.op == Adasum and not self._sparse_as_dense:
            for grad in grads:
                if isinstance(grad, tf.IndexedSlices):
                    sparse.check_slices(self._reduction)
        results = self._inputs(grads, variables)
        self._names = [_name_of(variable) for variable in variables]
        if run_time_values.is_alone():
            return [self._alone(grad) for grad in results]
        slices_of = {index: grad for index, grad in enumerate(grads) if isinstance(grad, tf.IndexedSlices)}
        use = graph.unique_name(of_thread(self._key), "#")
        dense = {i: g for i, g in enumerate(results) if g is not None and not isinstance(g, tf.IndexedSlices)}
        notes = _notes_on_the_rest(results, variables)
        with graph.device_scope(self._device_dense):
            for index, tensor in self._reduce_dense(dense, use, notes).items():
                results[index] = tensor
        with graph.device_scope(self._device_sparse):
            for index, grad in self._reduce_slices(slices_of, results, variables, use).items():
                results[index] = grad
        return results

    def _inputs(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        grads, variables = list(grads), list(variables)
        if len(grads) != len(variables):
            raise ValueError(
                "Expected one gradient (or None) for each variable. "
                f"Received: {len(grads)} gradients and {len(variables)} variables."
            )
        return [self._input(grad, tf.TensorShape(v.shape)) for grad, v in zip(grads, variables)]

    def _input(self, grad: Any, shape: tf.TensorShape) -> Any:
        if grad is None:
            return None
        if isinstance(grad, tf.IndexedSlices):
            if self._repeated_rows:
                return grad
            small = not run_time_values.is_alone() and sparse.is_small(grad, shape)
            return sparse.densified(grad, shape) if self._sparse_as_dense or xla.compiling() or small else grad
        grad = tf.convert_to_tensor(grad)
        if shape.is_fully_defined() and not grad.shape.is_fully_defined():
            return tf.ensure_shape(grad, shape)
        return grad

    def _alone(self, grad: Any) -> Any:
        """What one rank makes of a gradient: Average and Sum over itself, hence only the factors."""
        if isinstance(grad, tf.IndexedSlices):
            grad = grad if self._repeated_rows else sparse.with_unique_indices(grad)
            return tf.IndexedSlices(emit.scaled(grad.values, self._scale_alone), grad.indices, grad.dense_shape)
        return None if grad is None else emit.scaled(grad, self._scale_alone)

    def _reduce_slices(
        self, slices_of: dict[int, tf.IndexedSlices], results: list[Any], variables: Sequence[Any], use: str
    ) -> dict[int, tf.IndexedSlices]:
        """Those that are still slices are reduced; those that travelled as a small table become slices again."""
        if self._repeated_rows and slices_of:
            gathered = sparse.gather_slices(list(slices_of.values()), ReduceSpec(self._reduction.op), f"{use}.rows")
            return dict(zip(slices_of, gathered))
        shapes = {index: tf.TensorShape(variables[index].shape) for index in slices_of}
        travel = {index: grad for index, grad in slices_of.items() if isinstance(results[index], tf.IndexedSlices)}
        reduced = sparse.reduce_rows(travel, shapes, self._reduction, use)
        if not self._sparse_as_dense and not xla.compiling():
            small = {index: grad for index, grad in slices_of.items() if index not in travel}
            reduced.update({index: sparse.all_rows(results[index], grad) for index, grad in small.items()})
        return reduced

    def _reduce_dense(self, dense: dict[int, tf.Tensor], use: str, notes: list[str]) -> dict[int, tf.Tensor]:
        if not dense:
            return {}
        packed = {index: self._codec.compress(tensor) for index, tensor in dense.items()}
        tensors = {index: tensor for index, (tensor, _) in packed.items()}
        if tf.executing_eagerly():
            # The name carries the notes: ranks that differ in them wait, and are told so, instead of mixing gradients.
            name = ", ".join([use, *notes])
            outputs = emit.allreduce_list(list(tensors.values()), self._reduction, name)
            reduced = dict(zip(tensors, outputs))
        else:
            reduced = self._reduce_in_graph(tensors, use, notes)
        return {index: self._codec.decompress(tensor, packed[index][1]) for index, tensor in reduced.items()}

    def _reduce_in_graph(self, tensors: dict[int, tf.Tensor], use: str, notes: list[str]) -> dict[int, tf.Tensor]:
        """Those whose shape is known form the plan; the others are matched by name, like all where parts may be run."""
        may_plan = self._reduction.op != Adasum and not graph.is_for_session()
        planned = {index: tensor for index, tensor in tensors.items() if may_plan and emit.is_plannable(tensor)}
        reduced = self._reduce_planned(planned, use, notes) if planned else {}
        for index, tensor in tensors.items():
            if index not in planned:
                reduced[index] = emit.allreduce_list([tensor], self._reduction, f"{use}.{index}")[0]
        return reduced

    def _reduce_planned(self, tensors: dict[int, tf.Tensor], use: str, notes: list[str]) -> dict[int, tf.Tensor]:
        plan = self._register(tensors, use, notes)
        if xla.compiling():
            outputs = emit.reduce_plan_compiled(list(tensors.values()), plan, self._reduction, use)
        else:
            emit_one = emit.reduce_gradient
            if self._parts > 1:
                emit_one = functools.partial(emit.reduce_part, parts=self._parts)
            outputs = [
                emit_one(tensor, plan, place, self._reduction, use, f"{use}.{index}")
                for place, (index, tensor) in enumerate(tensors.items())
            ]
        return dict(zip(tensors, outputs))

    def _register(self, tensors: dict[int, tf.Tensor], use: str, notes: list[str]) -> int:
        plan: int = loader.core().register_plan(
            use,
            [tensor.dtype.name for tensor in tensors.values()],
            [tensor.shape.as_list() for tensor in tensors.values()],
            int(self._reduction.op),
            self._reduction.prescale,
            self._reduction.postscale,
            self._reduction.wire_dtype,
            notes,
            process_sets.current(),
            [self._names[index] for index in tensors],
            *(("reduce_parts", self._parts) if self._parts > 1 and not xla.compiling() else ()),
        )
        return plan


def _name_of(variable: Any) -> str:
    """Keras' path of a variable, or its name; "" for what has none."""
    return str(getattr(variable, "path", None) or getattr(variable, "name", None) or "")


def _notes_on_the_rest(grads: Sequence[Any], variables: Sequence[Any]) -> list[str]:
    """A line for every gradient that is not dense: the ranks compare them with the plan."""
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


def check_groups(groups: Any, num_groups: int = 0) -> None:
    """Checks Horovod's `groups`, which gradients to reduce together: raises what Horovod raises.

    Horovod fuses whatever happens to be ready, so its users group gradients to make that the same in every run. Here
    the buckets follow from the list of gradients alone, and are the same in every run and on every rank.

    Args:
        groups: a positive number of groups, a list of lists of variables, or None.
        num_groups: the deprecated name for the number; 0 for none.

    Raises:
        ValueError: `groups` is none of these.
    """
    if num_groups != 0:
        warn("`num_groups` is deprecated: write `groups`.", DeprecationWarning)
        groups = num_groups if groups is None else groups
    if groups is None or _is_positive_number(groups) or _is_list_of_lists_of_variables(groups):
        return
    raise ValueError(
        f"`groups` must be a positive integer or a list of lists of variables. Received: groups={groups!r}. "
        "Leave it out: buckets are the same in every run without it."
    )


def _is_positive_number(groups: Any) -> bool:
    if isinstance(groups, bool):
        return False
    try:
        return operator.index(groups) > 0
    except TypeError:
        return False


def _is_list_of_lists_of_variables(groups: Any) -> bool:
    return isinstance(groups, Sequence) and all(
        isinstance(group, Sequence) and all(hasattr(variable, "assign") for variable in group) for group in groups
    )

"""Computes the bytes that a rank needs to train a model, in graphs that never run: nothing is allocated."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf._native import loader
from smddp_tf.collectives.layouts import layout_of, mark
from smddp_tf.gradients.local_sources import LocalSources
from smddp_tf.gradients.options import partition_state_of
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.roles.optimizers import innermost, stays_local
from smddp_tf.keras.roles.wrapping import reducer_on, unwrapped
from smddp_tf.keras.sharding.partitioned_weights import MIN_ELEMENTS, can_be_divided
from smddp_tf.keras.sharding.sharded_state import ShardedState
from smddp_tf.keras.sharding.shards import FlatPart, degree_of, possible_degrees

_COLUMNS = ("weights", "slots", "parts", "gradients", "activations", "engine", "total")


@dataclasses.dataclass(frozen=True)
class MemoryRow:
    """Bytes of a rank, of the one that has most, where `degree` ranks share the optimizer's state."""

    degree: int
    weights: int  # all variables of the model, or this rank's parts of them
    slots: int  # the optimizer's variables, and the sums of `backward_passes_per_step`
    parts: int  # of the weights: what is updated where state is shared; where weights are in parts, see docs/memory.md
    gradients: int  # full and dense, each makes room for the gathered weight; or in parts, where weights are
    activations: int  # what the backward pass needs of the forward pass; 0 without a batch
    engine: int  # shared memory of this rank, for fusion buckets

    @property
    def total(self) -> int:
        """The sum of all."""
        return sum(dataclasses.astuple(self)[1:])


@dataclasses.dataclass(frozen=True)
class MemoryReport:
    """The result of `memory`, with a row for each degree, in order; `print` shows a table."""

    rows: tuple[MemoryRow, ...]
    budget: int | None = None

    @property
    def needed(self) -> int | None:
        """The smallest degree whose total is within the budget; None where none is, or without a budget."""
        return next((row.degree for row in self.rows if self.budget is not None and row.total <= self.budget), None)

    def to_json(self) -> str:
        """The numbers, in bytes."""
        rows = [{**dataclasses.asdict(row), "total": row.total} for row in self.rows]
        return json.dumps({"rows": rows, "budget": self.budget, "needed": self.needed})

    def __str__(self) -> str:
        columns = [[name, *(f"{getattr(row, name) / 2**20:,.1f}" for row in self.rows)] for name in _COLUMNS]
        heads = ["MiB of a rank", *(f"{row.degree:>2} part{'s' * (row.degree > 1):<6}" for row in self.rows)]
        lines = [head + "".join(f"{cell:>13}" for cell in cells) for head, *cells in zip(heads, *columns)]
        if self.budget is not None:
            least, fits = min(self.rows, key=lambda row: row.total), f"is enough with partition_state={self.needed}."
            least_of = f"the least is {least.total / 2**20:,.1f} MiB, with partition_state={least.degree}."
            too_small = f"is too small: {least_of}"
            lines.append(f"{self.budget / 2**20:,.1f} MiB " + (too_small if self.needed is None else fits))
        return "\n".join(lines)


def memory(
    model: keras.Model, optimizer: keras.optimizers.Optimizer | None = None, *,
    partition_state: str | int | None = None, batch: Any = None, budget: int | None = None, ranks: int | None = None,
    shard: str | int | None = None, weights: bool = False,
) -> MemoryReport:  # fmt: skip
    """Computes the bytes that a rank needs to train `model`, for each number of ranks that share the optimizer's state.

    On top come TensorFlow itself, temporaries, and what the C library keeps of freed memory: see docs/memory.md.

    Args:
        model: Keras model, built.
        optimizer: Keras optimizer, wrapped or not, built or not; it stays as it is. Defaults to the model's.
        partition_state: the only degree to show, as in `DistributedOptimizer`. Defaults to all that the ranks of this
            job allow.
        batch: of one rank, to count activations for: its size, or inputs. Defaults to none.
        budget: bytes that a rank has, for `needed`.
        ranks: shows the degrees of a job with so many ranks instead: its divisors.
        shard: the older name of `partition_state`.
        weights: boolean, whether the model will be made in `hvd.partition_weights`: the degrees are numbers of parts of
            the weights then, of a model that is made without. Defaults to `False`.

    Returns:
        A `MemoryReport`; its numbers are bytes.

    Raises:
        ValueError: the model is not built, there is no optimizer, or arguments do not fit.
        NotImplementedError: `partition_state` is given, and the optimizer needs full tensors.
    """
    needs_keras_3("hvd.memory")
    partition_state = partition_state_of(partition_state, shard)
    optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
    contradict = bool(ranks) and partition_state is not None
    if not isinstance(optimizer, keras.optimizers.Optimizer) or not model.built or contradict:
        raise ValueError(
            "`hvd.memory` needs a model that is built (call it on a batch, or model.build(shape)), an optimizer unless "
            "it is compiled, and one of `partition_state` and `ranks` at most. Received: "
            f"model.built={model.built}, optimizer={optimizer!r}, partition_state={partition_state!r}, ranks={ranks}."
        )
    allowed = possible_degrees() if partition_state is None else [degree_of(partition_state)]
    degrees = [degree for degree in range(1, ranks + 1) if ranks % degree == 0] if ranks else allowed
    trainable = list(model.trainable_variables)
    activations = 0 if batch is None else _activations(model, _inputs(model, batch))
    engine, rows = loader.core().stats()["arena_bytes"], []
    for degree in degrees:
        try:
            slots, parts, gradients = _state(optimizer, trainable, degree, weights)
        except NotImplementedError:  # of an optimizer that needs full tensors
            if partition_state is not None:
                raise
            break
        stored = sum(_bytes_of([each]) // (degree if weights and _is_divided(each) else 1) for each in model.variables)
        rows.append(MemoryRow(degree, stored, slots, parts, gradients, activations, engine))
    return MemoryReport(tuple(rows), budget)


def _bytes_of(variables: Iterable[keras.Variable], least: int = 0) -> int:
    return sum(math.prod(each.shape) * max(tf.as_dtype(each.dtype).size, least) for each in variables)


def _is_divided(weight: keras.Variable) -> bool:
    return can_be_divided(weight.dtype) and math.prod(weight.shape) >= MIN_ELEMENTS and not layout_of(weight)


def _state(
    optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable], degree: int, weights: bool
) -> tuple[int, int, int]:
    """The bytes of an optimizer's variables, of `MemoryRow.parts` and of the gradients."""
    inner, reducer, state = innermost(optimizer), reducer_on(optimizer), ShardedState(None, "hvd.memory")
    config, plain = inner.get_config(), unwrapped(type(inner))
    kept = getattr(reducer, "local", LocalSources()).indices(variables)
    sums = 8 + _bytes_of(variables, least=4) if getattr(reducer, "passes", None) else 0  # as in `Passes`
    with tf.Graph().as_default():
        for index, each in enumerate(variables):
            is_full = index in kept or stays_local(each) or 0 in each.shape  # as in `ShardedState.parts_for`
            state.variables.append(_stand_in(each, degree if weights and _is_divided(each) else 1))
            is_full = is_full or degree == 1 or weights
            state.parts.append(state.variables[-1] if is_full else _stand_in(each, degree))
        copy = plain.from_config(config)
        outer, before = copy if inner is optimizer else unwrapped(type(optimizer))(copy), len(copy.variables)
        outer.build(state.parts)
        if degree > 1:
            state.check_slots(copy, before)
        shards = [part for part, full in zip(state.parts, state.variables) if part is not full]
        # Of weights in parts: two that are gathered and three gradients, or three; and temporaries of all updates.
        largest = max([0, *(_bytes_of([each]) for each in variables if _is_divided(each))])
        parts = 5 * largest + _bytes_of(state.variables) if weights and degree > 1 else _bytes_of(shards)
        return _bytes_of(outer.variables) + sums, parts, _bytes_of(state.variables if weights else variables)


def _stand_in(variable: keras.Variable, degree: int) -> keras.Variable:
    """A variable like `variable`, or like the first of its parts, which is the longest."""
    layout, dtype = FlatPart(tuple(variable.shape), degree, tuple(range(degree))), tf.as_dtype(variable.dtype)
    shape = layout.full_shape if degree == 1 else (layout.span(0)[1],)
    dtype = tf.float32 if degree > 1 and dtype.is_floating and dtype.size == 2 else dtype
    made = keras.Variable("zeros", shape=shape, dtype=dtype.name, name=variable.name.replace("/", "_"))
    made._path = getattr(variable, "path", variable.name)  # some optimizers look for words in it
    made.overwrite_with_gradient = stays_local(variable)
    mark(made, layout if degree > 1 else layout_of(variable))
    return made


def _inputs(model: keras.Model, batch: Any) -> Any:
    """The shapes and dtypes of a batch."""
    if not isinstance(batch, (int, np.integer)):
        return tf.nest.map_structure(tf.convert_to_tensor, batch)
    inputs = getattr(getattr(model, "_functional", None) or model, "_inputs_struct", [])
    shapes = [tuple(each.shape) for each in tf.nest.flatten(inputs)]
    if not shapes or any(None in shape[1:] for shape in shapes):
        raise ValueError(
            "A number for `batch` needs a model that knows the shapes of its inputs; otherwise pass inputs. "
            f"Received: batch={batch!r} for inputs of the shapes {shapes}."
        )
    return tf.nest.map_structure(lambda each: tf.TensorSpec((int(batch), *each.shape[1:]), each.dtype), inputs)


def _activations(model: keras.Model, inputs: object) -> int:
    """The bytes of what the backward pass takes from the forward pass. Unknown shapes, as inside of loops, count 0."""
    graph = tf.__internal__.FuncGraph("hvd_memory")
    with graph.as_default():
        given = tf.nest.map_structure(lambda each: tf.compat.v1.placeholder(each.dtype, each.shape), inputs)
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(given, training=True))
            loss = tf.add_n([tf.reduce_sum(tf.square(tf.cast(each, tf.float32))) for each in outputs])
        forward = set(graph.get_operations())
        tape.gradient(loss, list(model.trainable_variables))
    taken = [_source(each) for op in graph.get_operations() if op not in forward for each in op.inputs]
    kept = {id(each): each for each in taken if each.op in forward and each.dtype != tf.resource}.values()
    tensors = [each for each in kept if each.op.type not in ("ReadVariableOp", "Const")]  # these take no more memory
    return sum((each.shape.num_elements() or 0) * each.dtype.size for each in tensors)


def _source(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor whose buffer it has."""
    while tensor.op.type in ("Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient"):
        tensor = tensor.op.inputs[0]
    return tensor

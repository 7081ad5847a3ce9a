"""What a rank needs to train a model, in bytes, by how many ranks share the optimizer's state.

Nothing is built at full size: slots are counted on a copy of the optimizer that is built in a graph that never runs,
and activations in a trace of the model.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf import basics
from smddp_tf._native import loader
from smddp_tf.gradients.local_sources import LocalSources, layout_of, mark
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.optimizer.accumulation import innermost, stays_local
from smddp_tf.keras.optimizer.wrapping import reducer_on, unwrapped
from smddp_tf.keras.sharding.degrees import degree_of, possible_degrees
from smddp_tf.keras.sharding.flat_part import FlatPart
from smddp_tf.keras.sharding.sharded_state import ShardedState

_SAME_BUFFER = {"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient"}
_OF_OTHERS = {"ReadVariableOp", "Const"}
_COLUMNS = ("weights", "slots", "parts", "gradients", "activations", "engine", "total")


@dataclasses.dataclass(frozen=True)
class MemoryRow:
    """Bytes of a rank, of the one that has most.

    Attributes:
        degree: how many ranks share the optimizer's state; 1: none.
        weights: all variables of the model.
        slots: the optimizer's variables, and the sums of `backward_passes_per_step`.
        parts: what is updated instead of the weights, where the state is shared.
        gradients: of all weights, dense. Where the state is shared, each of them makes room for the gathered weight.
        activations: what the backward pass needs of the forward pass; 0 without a batch.
        engine: shared memory of this rank: fusion buckets and rings.
    """

    degree: int
    weights: int
    slots: int
    parts: int
    gradients: int
    activations: int
    engine: int

    @property
    def total(self) -> int:
        """The sum of all."""
        return sum(dataclasses.astuple(self)) - self.degree


@dataclasses.dataclass(frozen=True)
class MemoryReport:
    """What `memory` returns; `print` shows a table.

    Attributes:
        rows: one for each degree, in order.
        budget: as given.
    """

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
        lines = ["MiB of a rank".ljust(13) + "".join(f"{name:>13}" for name in _COLUMNS)]
        for row in self.rows:
            numbers = "".join(f"{getattr(row, name) / 2**20:>13,.1f}" for name in _COLUMNS)
            lines.append(f"shard={row.degree}".ljust(13) + numbers)
        if self.budget is not None:
            least = min(self.rows, key=lambda row: row.total)
            fits = f"is enough with shard={self.needed}."
            too_small = f"is too small: the least is {least.total / 2**20:,.1f} MiB, with shard={least.degree}."
            lines.append(f"{self.budget / 2**20:,.1f} MiB " + (too_small if self.needed is None else fits))
        return "\n".join(lines)


def memory(
    model: Any, optimizer: Any = None, *, shard: Any = None, batch: Any = None, budget: int | None = None,
    ranks: int | None = None,
) -> MemoryReport:  # fmt: skip
    """What a rank needs to train `model`, in bytes, by how many ranks share the optimizer's state.

    The numbers are those of tensors that are alive together. What they are not: TensorFlow itself and its graphs,
    temporaries of single operations, and what the C library keeps of freed memory. See docs/memory.md.

    Example:

    >>> print(hvd.memory(model, keras.optimizers.AdamW(1e-3), batch=32, budget=16 * 2**30))

    Args:
        model: Keras model, built.
        optimizer: Keras optimizer, wrapped or not, built or not; it stays as it is. Defaults to the model's.
        shard: the only degree to show, as in `DistributedOptimizer`. Defaults to all that the ranks of this job allow.
        batch: of one rank, to count activations for: its size, or inputs. Defaults to none.
        budget: bytes that a rank has, for `needed`.
        ranks: shows the degrees that so many ranks allow on nodes that fit them, instead of those of this job.

    Raises:
        ValueError: the model is not built, there is no optimizer, or `shard` or `batch` do not fit.
        NotImplementedError: `shard` is given, and the optimizer needs whole tensors.
    """
    needs_keras_3("hvd.memory")
    optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
    if not isinstance(optimizer, keras.optimizers.Optimizer) or not model.built or (ranks and shard is not None):
        raise ValueError(
            "`hvd.memory` needs a model that is built (call it on a batch, or model.build(shape)), an optimizer unless "
            "it is compiled, and one of `shard` and `ranks` at most. Received: "
            f"model.built={model.built}, optimizer={optimizer!r}, shard={shard!r}, ranks={ranks}."
        )
    degrees = possible_degrees() if shard is None else [degree_of(shard)]
    if ranks:
        degrees = [degree for degree in range(1, ranks + 1) if ranks % degree == 0]
    trainable = list(model.trainable_variables)
    gradients, weights = _bytes_of(trainable), _bytes_of(model.variables)
    activations = 0 if batch is None else _activations(model, _inputs(model, batch))
    engine = loader.core().stats()["arena_bytes"]
    rows = []
    for degree in degrees:
        try:
            slots, parts = _state(optimizer, trainable, degree)
        except NotImplementedError:  # of the optimizers that need whole tensors
            if shard is not None:
                raise
            break
        rows.append(MemoryRow(degree, weights, slots, parts, gradients, activations, engine))
    return MemoryReport(tuple(rows), budget)


def _bytes_of(variables: Iterable[Any]) -> int:
    return sum(math.prod(each.shape) * tf.as_dtype(each.dtype).size for each in variables)


def _state(optimizer: Any, variables: Sequence[Any], degree: int) -> tuple[int, int]:
    """The bytes of an optimizer's variables, and of the parts that they are built for; of the rank with most."""
    inner, reducer, state = innermost(optimizer), reducer_on(optimizer), ShardedState(None, "hvd.memory")
    config, plain = inner.get_config(), unwrapped(type(inner))
    kept = (LocalSources() if reducer is None else reducer.local).indices(variables)
    sums = 0
    if reducer is not None and reducer.passes is not None:
        sums = 8 + sum(math.prod(each.shape) * max(tf.as_dtype(each.dtype).size, 4) for each in variables)
    with tf.Graph().as_default():  # never runs, so its variables take no memory
        state.wholes = [_stand_in(variable, 1) for variable in variables]
        state.parts = [
            whole if degree == 1 or index in kept or stays_local(variable) or 0 in variable.shape
            else _stand_in(variable, degree)
            for index, (variable, whole) in enumerate(zip(variables, state.wholes))
        ]  # fmt: skip
        copy = plain.from_config(config)
        outer = copy if inner is optimizer else unwrapped(type(optimizer))(copy)
        before = len(copy.variables)
        outer.build(state.parts)
        if degree > 1:
            state.check_slots(copy, before)
        cut = [part for part, whole in zip(state.parts, state.wholes) if part is not whole]
        return _bytes_of(outer.variables) + sums, _bytes_of(cut)


def _stand_in(variable: Any, degree: int) -> Any:
    """A variable of the shape of `variable`, or of its first and longest part."""
    shape, dtype = tuple(variable.shape), tf.as_dtype(variable.dtype)
    layout = FlatPart(shape, degree, tuple(range(degree)))
    if degree > 1:
        shape = (layout.span(0)[1],)
        dtype = tf.float32 if dtype.is_floating and dtype.size == 2 else dtype
    made = keras.Variable("zeros", shape=shape, dtype=dtype.name, name=variable.name.replace("/", "_"))
    made._path = getattr(variable, "path", variable.name)  # some optimizers look for words in it
    made.overwrite_with_gradient = stays_local(variable)
    if degree > 1 or layout_of(variable) is not None:
        mark(made, layout if degree > 1 else layout_of(variable))
    return made


def _inputs(model: Any, batch: Any) -> Any:
    """The shapes and dtypes of a batch."""
    if not isinstance(batch, (int, np.integer)):
        return tf.nest.map_structure(lambda value: tf.TensorSpec.from_tensor(tf.convert_to_tensor(value)), batch)
    inputs = getattr(getattr(model, "_functional", None) or model, "_inputs_struct", [])
    shapes = [tuple(each.shape) for each in tf.nest.flatten(inputs)]
    if not shapes or any(None in shape[1:] for shape in shapes):
        raise ValueError(
            "A number for `batch` needs a model that knows the shapes of its inputs. Pass the inputs of a batch "
            f"instead. Received: batch={batch!r} for inputs of the shapes {shapes}."
        )
    return tf.nest.map_structure(lambda each: tf.TensorSpec((int(batch), *each.shape[1:]), each.dtype), inputs)


def _activations(model: Any, inputs: Any) -> int:
    """The bytes of what the backward pass takes from the forward pass, by a trace of both.

    The loss is taken to keep the model's outputs. Tensors of unknown shape, as those inside of loops, count nothing.
    """
    graph = tf.__internal__.FuncGraph("hvd_memory")
    with graph.as_default():
        given = tf.nest.map_structure(lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape), inputs)
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(given, training=True))
            loss = tf.add_n([tf.reduce_sum(tf.square(tf.cast(each, tf.float32))) for each in outputs])
        forward = set(graph.get_operations())
        tape.gradient(loss, list(model.trainable_variables))
    taken = [_source(each) for op in graph.get_operations() if op not in forward for each in op.inputs]
    kept = {each.ref(): each for each in taken if each.op in forward and each.op.type not in _OF_OTHERS}
    sizes = [(each.shape.num_elements() or 0) * (each.dtype.size or 0) for each in kept.values()]
    return sum(size for size, each in zip(sizes, kept.values()) if each.dtype not in (tf.resource, tf.variant))


def _source(tensor: Any) -> Any:
    while tensor.op.type in _SAME_BUFFER:
        tensor = tensor.op.inputs[0]
    return tensor

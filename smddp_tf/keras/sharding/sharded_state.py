"""The state of one optimizer, sharded over the ranks: builds, updates and gathers shards instead of full variables.

Keras's optimizer is built for this rank's *parts* of the variables, so its slots, moving averages and accumulators are
parts too, and everything that Keras does in an update (weight decay, clipping, EMA) it does to parts. One step:

1. reduced gradients arrive as parts (`GradientReducer`), or in full, and are sharded here;
2. each part takes the present value of its variable, so that whatever changed a variable since is kept;
3. Keras's `apply` updates the parts;
4. updated parts are gathered, each as soon as it is updated, into the variables.

After Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (SC20), stages 1 and 2.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import basics
from smddp_tf._native.threads import of_thread
from smddp_tf.collectives import emit, graph, ops
from smddp_tf.collectives.layouts import identity, layout_of, mark
from smddp_tf.collectives.reduce_op import ReduceSpec, Sum
from smddp_tf.collectives.topology_ops import traced_ranks
from smddp_tf.gradients.local_sources import LocalSources, stays_local
from smddp_tf.keras._backend import keras
from smddp_tf.keras.saving.sharded_variables import save_full_variables
from smddp_tf.keras.sharding.shards import FlatPart, degree_of, shard_indices

# Optimizers that look at full tensors.
REFUSED = {"Adafactor", "Lamb", "Muon", "ScheduleFreeAdamW"}


class ShardedState:
    """See the module.

    Args:
        partition_state: the argument of `DistributedOptimizer`.
        name: of the optimizer, for messages; the same on all ranks.

    Attributes:
        degree: the number of shards of the state; 1: it is not sharded.
        variables: the full variables that the optimizer was built for.
        parts: for each of them this rank's shard, a Keras variable; or itself where it is not sharded.
        clipped_layouts: of the gradients that Keras clips now; None for full ones.
    """

    def __init__(self, partition_state: str | int | None, name: str) -> None:
        self.degree = degree_of(partition_state)
        self.variables: list[Any] = []
        self.parts: list[Any] = []
        self._asked, self._name = partition_state, name
        self._variable_of: dict[int, Any] = {}  # by id of the `tf.Variable` inside of a part
        self.clipped_layouts: list[Any] = []
        save_full_variables()

    @property
    def planned_parts(self) -> int:
        """`degree`, where plans can reduce to parts: on nodes with equal numbers of ranks."""
        return self.degree if basics.is_homogeneous() else 1

    def parts_for(self, variables: Sequence[Any], local: LocalSources) -> list[Any]:
        """Returns the variables for which the optimizer is built: shards of `variables`. Local ones are not sharded."""
        kept = local.indices(variables)
        self.variables = list(variables)
        self.parts = [
            variable if index in kept or stays_local(variable) or 0 in variable.shape else self._part_of(variable)
            for index, variable in enumerate(variables)
        ]
        self._variable_of = {id(identity(part)): full for part, full in zip(self.parts, self.variables)}
        return self.parts[:]

    def check_slots(self, optimizer: keras.optimizers.Optimizer, before: int) -> None:
        """Raises NotImplementedError where an optimizer has state that cannot be sharded.

        Args:
            optimizer: built.
            before: how many variables it had before it was built.
        """
        names = {each.__name__ for each in type(optimizer).__mro__} & REFUSED
        of_unsharded = any(part is full for part, full in zip(self.parts, self.variables))
        slots = optimizer.variables[before:]
        wrong = [v for v in slots if (_varies(v) if layout_of(v) is not None else len(v.shape) and not of_unsharded)]
        if names or wrong:
            raise NotImplementedError(
                "`partition_state` needs an optimizer whose update of an element depends on that element alone, and "
                "whose slots are made by `add_variable_from_reference` and begin with one number, not with the "
                "weights. "
                f"Received: {type(optimizer).__name__}"
                f"{'' if names else f' with the slot {wrong[0].path}'}. Use another optimizer, or leave "
                "`partition_state` out."
            )

    def variable_of(self, part: keras.Variable | tf.Variable) -> keras.Variable | tf.Variable:
        """Returns the full variable of a shard, or `part` itself. A `tf.Variable` for the one inside of a shard."""
        full = self._variable_of.get(id(identity(part)), part)
        return identity(full) if isinstance(part, tf.Variable) else full

    def apply(
        self, optimizer: Any, plain: Callable[..., Any], grads: Sequence[Any], variables: Sequence[Any] | None
    ) -> Any:
        """Keras's `apply`, with parts.

        Args:
            optimizer: whose state this is. It is built for `variables` where it is not.
            plain: `plain(grads, variables)`.
            grads: reduced gradients or None, full ones or shards.
            variables: full ones; None for all that the optimizer was built for.
        """
        if not optimizer.built and variables is not None:
            optimizer.build(list(variables))
        self._check_ranks()
        variables = self.variables if variables is None else variables
        by_id = {id(identity(full)): part for full, part in zip(self.variables, self.parts)}
        parts = [by_id.get(id(identity(variable)), variable) for variable in variables]
        with tf.control_dependencies(traced_ranks(f"the state of {self._name} is partitioned")):
            for part, variable in zip(parts, variables):
                if part is not variable:
                    part.assign(self._present(part, variable))
        # In a branch of a graph, Keras takes tensors of the branch only, or of outside of it only.
        shards = [
            None if grad is None else tf.identity(grad if part is full else _shard_of(grad, part))
            for grad, part, full in zip(grads, parts, variables)
        ]
        self.clipped_layouts = layouts_of(grads, parts)
        result = plain(shards, parts)
        for grad, part, variable in zip(grads, parts, variables):
            if grad is not None and part is not variable and getattr(variable, "constraint", None) is not None:
                variable.assign(variable.constraint(variable))
        return result

    def gather(self, parts: Sequence[Any]) -> None:
        """Gives the variables the values of their parts, those of all ranks."""
        pairs = [(part, full) for part in parts if (full := self.variable_of(part)) is not part]
        values = [tf.cast(tf.convert_to_tensor(part), full.dtype) for part, full in pairs]
        layouts = [layout_of(part) for part, _ in pairs]
        for (_, full), value in zip(pairs, gathered_parts(values, layouts, self._name, self.planned_parts > 1)):
            full.assign(value)

    def _part_of(self, variable: keras.Variable) -> keras.Variable:
        layout = FlatPart(tuple(variable.shape), self.degree, shard_indices(self.degree))
        first, end = layout.span(basics.rank())
        dtype = tf.as_dtype(variable.dtype)
        kept = tf.float32 if dtype.is_floating and dtype.size == 2 else dtype
        name = variable.name.replace("/", "_").replace(":", "_")
        # Two numbers, so that `check_slots` sees copies; each step begins with the weights.
        part = keras.Variable(_alternating, shape=(end - first,), dtype=kept.name, trainable=False, name=name)
        with contextlib.suppress(AttributeError):  # slots are named after it
            part._path = getattr(variable, "path", variable.name)
        mark(part, layout)
        return part

    def _present(self, part: keras.Variable, variable: keras.Variable) -> tf.Tensor:
        """This rank's part of the value that the variable has now.

        A part of a variable of 16 bits has 32, which stay as they are while they round to what the variable holds.
        """
        value = _shard_of(tf.convert_to_tensor(variable), part)
        wide = tf.cast(value, part.dtype)
        if tf.as_dtype(part.dtype) == value.dtype:
            return wide
        kept = tf.convert_to_tensor(part)
        return tf.where(tf.cast(kept, value.dtype) == value, kept, wide)

    def _check_ranks(self) -> None:
        layouts = (layout_of(part) for part, full in zip(self.parts, self.variables) if part is not full)
        indices = next((layout.shard_indices for layout in layouts), ())
        if len(indices) not in (0, basics.size()):
            raise RuntimeError(
                f"The state of the optimizer was partitioned over {len(indices)} ranks (partition_state={self._asked!r}"
                f"), and this session has {basics.size()}. Parts of lost ranks are in commits on disk and saved files "
                "only: make model and optimizer again, and load one of these."
            )


def layouts_of(grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Returns the layouts of the gradients that Keras clips, None for full ones."""
    pairs = zip(grads, variables)
    return [layout_of(variable) for grad, variable in pairs if grad is not None and not stays_local(variable)]


def clipped(
    optimizer: keras.optimizers.Optimizer, grads: Sequence[Any], plain: Callable[..., Any], layouts: Sequence[Any],
    name: str,
) -> Any:  # fmt: skip
    """Keras's `_clip_gradients`, with the norms of full gradients.

    Args:
        optimizer: whose gradients these are.
        grads: shards, or full gradients that are equal on all ranks.
        plain: `plain(grads)`.
        layouts: from `layouts_of`.
        name: of the optimizer, equal on all ranks.
    """
    norm, limit = optimizer.clipnorm, optimizer.clipnorm or optimizer.global_clipnorm
    if not limit or not any(layouts):
        return plain(grads)
    wide = tf.float64 if tf.float64 in [grad.dtype for grad in grads] else tf.float32
    squares = tf.stack([tf.reduce_sum(tf.square(tf.cast(grad, wide))) for grad in grads])
    all_ranks = ops.allreduce(squares, op=Sum, name=of_thread(f"{name} (norms of gradients)"))
    replicas = [basics.size() // layout.parts if layout else 1 for layout in layouts]
    squares = tf.where([bool(layout) for layout in layouts], all_ranks / tf.constant(replicas, wide), squares)
    if norm:
        norms = tf.sqrt(squares)
        factors = tf.unstack(limit / tf.maximum(norms, limit), num=len(grads))
        return [grad * tf.cast(factor, grad.dtype) for grad, factor in zip(grads, factors)]
    total = tf.sqrt(tf.reduce_sum(squares))
    # As `keras.src.optimizers.base_optimizer.clip_by_global_norm`: what is not finite makes all NaN.
    factor = limit * tf.minimum(1.0 / total, 1.0 / limit) + (total - total)
    return [grad * tf.cast(factor, grad.dtype) for grad in grads]


def _alternating(shape: tuple[int, ...], dtype: str | None = None) -> tf.Tensor:
    return tf.cast(tf.range(shape[0]) % 2, dtype)


def _varies(slot: keras.Variable) -> bool:
    """Are there several numbers in it? A graph cannot tell."""
    value = tf.convert_to_tensor(slot)
    return tf.executing_eagerly() and bool(tf.reduce_any(value != value[:1]))


def _shard_of(value: tf.Tensor, part: keras.Variable) -> tf.Tensor:
    """Returns the elements of a shard, from a full value; a shard is returned as it is."""
    layout = layout_of(part)
    if tuple(value.shape) != (layout.length,):
        return own_elements(value, layout)
    first, end = layout.span(basics.rank())
    return value if end - first == layout.length else value[: end - first]


def own_elements(full: tf.Tensor, layout: FlatPart) -> tf.Tensor:
    """Returns this rank's elements of a full value, flat."""
    first, end = layout.span(basics.rank())
    return tf.reshape(full, [-1])[first:end]


def gathered_parts(parts: Sequence[Any], layouts: Sequence[Any], key: str, may_plan: bool) -> list[Any]:
    """Returns the full values. All ranks must call it with the same list.

    In plain graphs each value is gathered as soon as its parts are there, by a plan; elsewhere all together.

    Args:
        parts: tensors of rank 1, this rank's parts.
        layouts: of each; see `smddp_tf.keras.sharding.shards.FlatPart`.
        key: the name of the optimizer, the same on all ranks.
        may_plan: bool, whether the nodes have equal numbers of ranks.
    """
    if not parts:
        return []
    name = graph.unique_name(of_thread(f"{key} (weights)"), "#")
    padded = [_padded(part, layout) for part, layout in zip(parts, layouts)]
    plannable = all(emit.is_plannable(part) for part in padded)
    if may_plan and plannable and not (tf.executing_eagerly() or graph.compiling() or graph.is_for_session()):
        return _planned(padded, layouts, name)
    return [_joined(rows, layout) for rows, layout in zip(emit.allgather_list(padded, name), layouts)]


def _planned(parts: Sequence[Any], layouts: Sequence[Any], name: str) -> list[Any]:
    degree, dtypes = layouts[0].parts, [part.dtype.name for part in parts]
    shapes = [list(layout.full_shape) for layout in layouts]
    plan = emit.register_plan(name, dtypes, shapes, ReduceSpec(Sum), kind="gather_parts", parts=degree)
    return [
        emit.gather_part(part, plan, index, shape, name, f"{name}.{index}", degree)
        for index, (part, shape) in enumerate(zip(parts, shapes))
    ]


def _padded(part: tf.Tensor, layout: FlatPart) -> tf.Tensor:
    missing = layout.length - part.shape[0]
    return tf.pad(part, [[0, missing]]) if missing else part


def _joined(rows: tf.Tensor, layout: FlatPart) -> tf.Tensor:
    """From the parts of all ranks, one after another."""
    order = [layout.shard_indices.index(shard) for shard in range(layout.parts)]
    parts = tf.reshape(rows, [len(layout.shard_indices), layout.length])
    if order != list(range(len(layout.shard_indices))):
        parts = tf.gather(parts, order)
    return tf.reshape(tf.reshape(parts, [-1])[: math.prod(layout.full_shape)], layout.full_shape)

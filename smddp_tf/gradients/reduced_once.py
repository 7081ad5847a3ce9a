"""Finds out that gradients of `DistributedGradientTape` are about to be reduced again, by a wrapped optimizer."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import basics
from smddp_tf.process_sets import ProcessSet

# The tensors that tapes have reduced, with their process sets: by name in each graph that is alive, and eager ones.
_in_graph: weakref.WeakKeyDictionary[Any, dict[str, int | None]] = weakref.WeakKeyDictionary()
_eager = threading.local()
_count = 0

# What is done to a gradient that stays a gradient: copies, casts, and clipping and scaling by one number.
_COPIES = frozenset({"Cast", "CheckNumerics", "EnsureShape", "Identity", "IdentityN", "Neg", "StopGradient"})
_BY_ONE_NUMBER = frozenset(
    {"Add", "AddV2", "ClipByValue", "DivNoNan", "Maximum", "Minimum", "Mul", "MulNoNan", "RealDiv", "SelectV2", "Sub"}
)


def note(grads: Iterable[Any], process_set: ProcessSet) -> None:
    """Remembers the results of a tape: tensors, `tf.IndexedSlices` or None."""
    global _count
    _count += 1
    if basics.size() == 1:  # nothing is lost by reducing twice
        return
    number = process_set.process_set_id
    alive = [(known, of) for known, of in _noted_eagerly() if known() is not None]
    for tensor in _tensors(grads):
        if isinstance(tensor, tf.__internal__.EagerTensor):
            alive.append((weakref.ref(tensor), number))
        else:
            _in_graph.setdefault(tensor.graph, {})[tensor.name] = number
    _eager.noted = alive


def count() -> int:
    """How often a tape was asked to reduce: in eager mode in each step, in a graph when that is traced."""
    return _count


def refuse(grads: Sequence[Any], variables: Sequence[Any], process_set: ProcessSet) -> None:
    """Raises a ValueError where a gradient is what a tape has reduced over the same ranks.

    In a graph also where it is a copy of that one, clipped or scaled by one number. Gradients that depend on a reduced
    gradient in other ways (through weights that it has updated, as in MAML, or its norm) are the user's own.
    """
    if basics.size() == 1 or (not _in_graph and not _noted_eagerly()):
        return
    for grad, variable in zip(grads, variables):
        if any(process_set.process_set_id in _sets_of(tensor) for tensor in _tensors([grad])):
            name = getattr(variable, "path", None) or getattr(variable, "name", "")
            raise ValueError(
                "Gradients that hvd.DistributedGradientTape has reduced would be reduced again by an optimizer that "
                f"hvd.DistributedOptimizer has wrapped. Received: such a gradient for the variable {name!r} (this is "
                f"rank {basics.rank()}). Use one of the two: a plain tf.GradientTape with the wrapped optimizer, or "
                "hvd.DistributedGradientTape with the optimizer as it is."
            )


def _noted_eagerly() -> list[tuple[Any, int | None]]:
    return getattr(_eager, "noted", [])


def _tensors(grads: Iterable[Any]) -> Iterator[Any]:
    for grad in grads:
        tensor = grad.values if isinstance(grad, tf.IndexedSlices) else grad
        if isinstance(tensor, tf.Tensor):
            yield tensor


def _sets_of(tensor: Any) -> Iterator[int | None]:
    """The process sets over which `tensor`, or what it is a copy of, clipped or scaled, was reduced."""
    todo, seen = [tensor], set()
    while todo:
        tensor = todo.pop()
        if isinstance(tensor, tf.__internal__.EagerTensor):
            yield from (of for known, of in _noted_eagerly() if known() is tensor)
            continue
        place = (id(tensor.graph), tensor.name)
        if place in seen:
            continue
        seen.add(place)
        if tensor.name in _in_graph.get(tensor.graph, ()):
            yield _in_graph[tensor.graph][tensor.name]
        else:
            todo += _sources(tensor)


def _sources(tensor: Any) -> list[Any]:
    """What it is a copy of, clipped or scaled; of what an inner function captures the tensor outside."""
    op = tensor.op
    if op.type == "Placeholder" and tensor.graph.building_function:
        return [outer for outer, inner in tensor.graph.captures if inner.name == tensor.name]
    if op.type in _COPIES:
        return [op.inputs[tensor.value_index]]
    if op.type not in _BY_ONE_NUMBER or not tensor.shape.rank:  # a scalar may have been made from anything
        return []
    large = [each for each in op.inputs if each.shape == tensor.shape]
    others = [each for each in op.inputs if each.shape != tensor.shape]
    return large if len(large) == 1 and all(each.shape.num_elements() == 1 for each in others) else []

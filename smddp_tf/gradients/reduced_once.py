"""Detects gradients of `DistributedGradientTape` in a wrapped optimizer, which would reduce them again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import basics
from smddp_tf.collectives.rank_facts import warn_once_on_rank_zero
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.process_sets import ProcessSet

# The process set over which a tape has reduced, and how (`hvd.Average`, ...).
_How = tuple["int | None", int]
# The tensors that tapes have reduced: by name in each graph that is alive, and eager ones.
_in_graph: weakref.WeakKeyDictionary[Any, dict[str, _How]] = weakref.WeakKeyDictionary()
_eager = threading.local()
_count = 0

# Ops whose result is still a gradient: copies, casts, and clipping and scaling by one number.
_COPIES = frozenset({"Cast", "CheckNumerics", "EnsureShape", "Identity", "IdentityN", "Neg", "StopGradient"})
_BY_ONE_NUMBER = frozenset(
    {"Add", "AddV2", "ClipByValue", "DivNoNan", "Maximum", "Minimum", "Mul", "MulNoNan", "RealDiv", "SelectV2", "Sub"}
)


def note(grads: Iterable[Any], process_set: ProcessSet, op: int) -> None:
    """Remembers the results of a tape: tensors, `tf.IndexedSlices` or None."""
    global _count
    _count += 1
    if basics.size() == 1:  # nothing is lost by reducing twice
        return
    how = process_set.process_set_id, op
    alive = [(known, of) for known, of in _noted_eagerly() if known() is not None]
    for tensor in _tensors(grads):
        if isinstance(tensor, tf.__internal__.EagerTensor):
            alive.append((weakref.ref(tensor), how))
        else:
            _in_graph.setdefault(tensor.graph, {})[tensor.name] = how
    _eager.noted = alive


def count() -> int:
    """Returns how often a tape has reduced: in eager mode once in each step, in a graph once when it is traced."""
    return _count


def by_tape(
    grads: Sequence[Any], variables: Sequence[Any], kept: Container[int], process_set: ProcessSet, op: int | None
) -> bool:
    """Returns whether a tape has reduced the gradients over the same ranks; an optimizer then need not. Warns once.

    In a graph also where they are copies of what it has reduced, clipped or scaled by one number. Gradients that depend
    on a reduced gradient in other ways (through weights that it has updated, as in MAML, or its norm) are the user's
    own.

    Args:
        grads: tensors, `tf.IndexedSlices` or None.
        variables: what they are the gradients of.
        kept: the indices of those that the optimizer does not reduce.
        process_set: over which it reduces the others.
        op: how the optimizer reduces; None where it cannot leave that out.

    Raises:
        ValueError: Some are, and a second reduction is not the same as none: a sum, or there are others as well.
    """
    if basics.size() == 1 or (not _in_graph and not _noted_eagerly()):
        return False
    number = process_set.process_set_id
    shared = [pair for index, pair in enumerate(zip(grads, variables)) if index not in kept and pair[0] is not None]
    given = [(variable, list(_tensors([grad]))) for grad, variable in shared]
    ops = [{how for of, how in _reductions_of(tensor) if of == number} for _, tensors in given for tensor in tensors]
    if not any(ops):
        return False
    if op == Average and all(each == {Average} for each in ops):
        warn_once_on_rank_zero(
            "Both the tape (hvd.DistributedGradientTape) and the optimizer (hvd.DistributedOptimizer) are wrapped, "
            "with hvd.Average over the same ranks. The optimizer leaves the gradients of the tape as they are, because "
            "the mean of equal means is the same. Wrap only one of the two."
        )
        return True
    variable = next(variable for (variable, _), each in zip(given, ops) if each)
    name = getattr(variable, "path", None) or getattr(variable, "name", "")
    raise ValueError(
        "Gradients that hvd.DistributedGradientTape has reduced would be reduced again by an optimizer that "
        f"hvd.DistributedOptimizer has wrapped. Received: such a gradient for the variable {name!r} (this is "
        f"rank {basics.rank()}). Use one of the two: a plain tf.GradientTape with the wrapped optimizer, or "
        "hvd.DistributedGradientTape with the optimizer as it is. Only where both take the mean (hvd.Average) of all "
        "gradients of a step over the same ranks, and `fit` has even data, the second is left out."
    )


def _noted_eagerly() -> list[tuple[Any, _How]]:
    return getattr(_eager, "noted", [])


def _tensors(grads: Iterable[Any]) -> Iterator[Any]:
    for grad in grads:
        tensor = grad.values if isinstance(grad, tf.IndexedSlices) else grad
        if isinstance(tensor, tf.Tensor):
            yield tensor


def _reductions_of(tensor: tf.Tensor) -> Iterator[_How]:
    """Yields how `tensor` was reduced, or the tensors of which it is a copy, a clipped or a scaled version."""
    todo, seen = [tensor], set()
    while todo:
        tensor = todo.pop()
        if isinstance(tensor, tf.__internal__.EagerTensor):
            yield from (of for known, of in _noted_eagerly() if known() is tensor)
            continue
        key = (id(tensor.graph), tensor.name)
        if key in seen:
            continue
        seen.add(key)
        if tensor.name in _in_graph.get(tensor.graph, ()):
            yield _in_graph[tensor.graph][tensor.name]
        else:
            todo += _sources(tensor)


def _sources(tensor: tf.Tensor) -> list[Any]:
    """Returns the tensors of which it is a copy, clipped or scaled, or that an inner function has captured as it."""
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

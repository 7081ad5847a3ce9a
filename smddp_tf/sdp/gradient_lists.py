"""Joins the gradients that `sdp.allreduce` gets one by one into a plan, whose buckets hold several of them.

A plan needs the dtypes and shapes of all its gradients, which are known only when the last call has been traced. So
each call emits its op without a plan, and the op gets it when the tracing of its graph ends, or earlier, when the rest
of the list can no longer be joined with it.
"""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf

from smddp_tf.collectives import emit, graph
from smddp_tf.collectives.reduce_op import Average, ReduceSpec, Sum

# A session keeps no more plans than these in use.
_MAX_PLANS = 512


class _OpenList:
    """The gradients of one list in one graph that have no plan yet.

    Args:
        count: integer, the length of the list.
        reduction: of all of them.
    """

    def __init__(self, count: int, reduction: ReduceSpec) -> None:
        self._count, self._reduction = count, reduction
        self._results: dict[int, tf.Tensor] = {}
        self._is_used_early = False

    def reduced(self, tensor: tf.Tensor, index: int, name: str) -> tf.Tensor | None:
        """Emits the op of gradient `index`; None where it would need one plan too many.

        A gradient may depend on results that are in use already, so it cannot be in one bucket with them.
        """
        is_used = any(result.consumers() or result.op._control_outputs for result in self._results.values())
        self._is_used_early |= is_used
        if is_used or index in self._results:  # or the list of another step
            self.close()
        if self._is_used_early and index >= _MAX_PLANS:
            return None
        if not self._results:
            tf.compat.v1.get_default_graph()._add_scope_exit_callback(self.close)
        self._results[index] = emit.reduce_gradient(tensor, 0, index, self._reduction, "", name)
        return self._results[index]

    def close(self) -> None:
        """Registers the plan of the gradients that have come, in the order of their indices, for their ops."""
        if not self._results:
            return
        indices, results = zip(*sorted(self._results.items()))
        self._results.clear()
        shapes, dtypes = [list(result.shape) for result in results], [result.dtype.name for result in results]
        names = [result.op.get_attr("tensor_name").decode() for result in results]
        key, notes = graph.unique_name(names[0], "#"), [f"gradients {[*indices]} of {self._count}"]
        plan = emit.register_plan(key, dtypes, shapes, self._reduction, notes=notes, names=names)
        for position, result in enumerate(results):
            emit.set_plan(result.op, plan, position, key)


_lists_of_graph: weakref.WeakKeyDictionary[Any, dict[tuple[int, ReduceSpec], _OpenList]] = weakref.WeakKeyDictionary()


def reduced(tensor: tf.Tensor, index: int, count: int, reduction: ReduceSpec, name: str) -> tf.Tensor | None:
    """Emits the op that reduces one gradient in the graph that is traced.

    Args:
        tensor: the gradient.
        index: integer, its place in the list.
        count: integer, the length of the list.
        reduction: how to reduce.
        name: of the gradient, the same on all ranks.

    Returns:
        The reduced gradient; None where it cannot be part of a plan.
    """
    by_name = tf.executing_eagerly() or graph.compiling() or graph.is_for_session()
    if by_name or not emit.is_plannable(tensor) or reduction.op not in (Average, Sum):
        return None
    lists = _lists_of_graph.setdefault(tf.compat.v1.get_default_graph(), {})
    return lists.setdefault((count, reduction), _OpenList(count, reduction)).reduced(tensor, index, name)

"""Our ops inside functions that XLA compiles (`jit_compile=True`): when that is the case, and in which order they run.

XLA drops control dependencies and runs independent calls in an order of its own, which may differ between ranks, while
each call waits for its like on the other ranks. So every op here takes something of the one before it as an input:
inside one graph its token, inside a branch or a loop body the token of the graph around it, and after a branch, a loop
or a call of another function a result of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util, control_flow_v2_func_graphs

from smddp_tf import _graph, _loader, process_sets

__all__ = ["OP_TYPE", "collective", "compiling"]

OP_TYPE = "SmddpCompiledCollective"

_OPAQUE = (tf.resource, tf.variant, tf.string)
_CHAIN = "_smddp_chain"


def compiling() -> bool:
    """True while a function is traced that XLA will compile."""
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def collective(kind: str, tensors: Sequence[tf.Tensor], name: str, **attributes: Any) -> list[tf.Tensor]:
    """Emits one op for all `tensors` and returns its results, which come after those of all ops emitted before.

    Args:
        kind: "reduce_gradients", "allreduce", "broadcast" or "allgather".
        tensors: what it is about.
        name: the name the ranks match by. As it is that of the op for plain graphs, some ranks may compile and others
            not.
        attributes: of the op.
    """
    graph = tf.compat.v1.get_default_graph()
    results, token = _loader.xla_library().smddp_compiled_collective(
        tensors=list(tensors),
        after=_before(graph),
        kind=kind,
        tensor_name=name,
        process_set=process_sets.current(),
        **attributes,
    )
    setattr(graph, _CHAIN, (token, len(graph.get_operations())))
    return list(results)


def _before(graph: Any) -> list[tf.Tensor]:
    """Tensors that are there when all ops of ours that were emitted before are through."""
    token, seen = getattr(graph, _CHAIN, (None, 0))
    before = [token] if token is not None else _around(graph)
    for op in graph.get_operations()[seen:]:
        if op.type in _graph.CALLS:
            before += [output for output in op.outputs if output.dtype not in _OPAQUE][:1]
    return before


def _around(graph: Any) -> list[tf.Tensor]:
    """The same of the graph around a branch or a loop body; not of a function, traced once for many callers."""
    if isinstance(graph, control_flow_v2_func_graphs.ControlFlowFuncGraph):
        return _before(graph.outer_graph)
    return []

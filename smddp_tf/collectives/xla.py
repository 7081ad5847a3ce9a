"""Our ops inside functions that XLA compiles (`jit_compile=True`), and the order in which they run.

XLA drops control dependencies and runs independent calls in an order of its own, which may differ between ranks, while
each call waits for the same call on the other ranks. So every op here reads a variable before it runs and assigns its
token to it afterwards. TensorFlow orders accesses to variables everywhere: between calls of functions, compiled or not,
in branches and in loops; and for XLA their values are ordinary data.

TensorFlow computes gradients in an order that depends on all ops that were traced before. So a collective also takes a
result of the one before it in its graph: gradients of collectives then come in the reverse order of the collectives.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.eager import record

from smddp_tf import process_sets
from smddp_tf._native import loader, threads
from smddp_tf.collectives import graph

OP_TYPE = "SmddpCompiledCollective"
_LAST_RESULT = "_smddp_last_result"  # of a graph: a result of its last collective that has a gradient

_order: dict[tuple[str, str], tf.Variable] = {}  # by device, and thread


def collective(kind: str, tensors: Sequence[tf.Tensor], name: str, **attributes: object) -> list[tf.Tensor]:
    """Emits one op for all `tensors` and returns its results, which come after those of all ops emitted before.

    Args:
        kind: "reduce_gradients", "allreduce", "broadcast" or "allgather".
        tensors: what it is about.
        name: the name the ranks match by. As it is that of the op for plain graphs, some ranks may compile and others
            not.
        attributes: of the op.
    """
    order, around = _order_variable(tensors[0].device), tf.compat.v1.get_default_graph()
    # The gradient of the collective before, whose result this one takes, comes after the gradient of this one.
    recorded = record.should_record_backprop(tensors)
    previous = getattr(around, _LAST_RESULT, []) if recorded else []
    after = [*([] if order is None else [order.read_value()]), *previous]
    addressed = {"tensor_name": name, "process_set": process_sets.current()}
    emit = loader.xla_library().smddp_compiled_collective
    results, token = emit(tensors=list(tensors), after=after, kind=kind, **addressed, **attributes)
    if order is not None:
        order.assign(tf.cast(token, order.dtype), read_value=False)
    if recorded and (floating := [result for result in results if result.dtype.is_floating]):
        setattr(around, _LAST_RESULT, floating[:1])
    return list(results)


def _order_variable(device: str) -> tf.Variable | None:
    """The one that ops on `device` pass on; threads whose collectives are apart have one each. Its value means nothing.

    A float, because TensorFlow keeps integers in host memory, where no function for a GPU may use them. None in a
    session of TensorFlow 1, which would have to initialise it.
    """
    if graph.is_inside_session():
        return None
    key = (device, threads.label())
    if key not in _order:
        with graph.eagerly(), graph.device_scope(device):
            made = tf.Variable(0.0, trainable=False, name="smddp_order")
        _order.setdefault(key, made)  # another thread may have been faster
    return _order[key]

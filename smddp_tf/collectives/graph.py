"""The graph that is being built: what it is for, the names of our ops in it, and the order in which they run."""

from __future__ import annotations

import contextlib
import functools
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import control_flow_util

from smddp_tf import process_sets
from smddp_tf._native import loader, threads

# Ops that contain graphs, and so perhaps our ops. Stateless kinds cannot contain them: our ops are stateful.
CALLS = frozenset({"Case", "If", "PartitionedCall", "StatefulPartitionedCall", "While"})
_FIRST = "_smddp_first"

# TensorFlow numbers the graphs of functions, branches and loop bodies over the whole process. One more trace on rank 0
# (an evaluation, say) shifts the numbers there, so they must not be part of names that all ranks share.
_GRAPH_NUMBER = re.compile(r"^(?:__inference_|__forward_|__backward_)?(?P<name>.*?)(?:_\d+)*_*$")

# Names given out so far, for each graph that is alive; and how many in all graphs.
_names_of_graph: weakref.WeakKeyDictionary[Any, set[tuple[int, str]]] = weakref.WeakKeyDictionary()
_count = 0


Function = TypeVar("Function", bound=Callable[..., Any])


def no_autograph(function: Function) -> Function:
    """Excludes `function`, and everything that it calls, from AutoGraph, which rewrites what a `tf.function` calls.

    Our code needs no rewriting, and finding that out took AutoGraph seconds when a step was first traced.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        process_sets.renew_defaults(function, shown)
        return function(*args, **kwargs)

    shown: Function = process_sets.with_defaults_of(function, tf.autograph.experimental.do_not_convert(call))
    return shown


def collective(function: Function) -> Function:
    """A collective of the API: excluded from AutoGraph, and run in the scope of its argument `process_set`."""
    return no_autograph(process_sets.scoped(function))


def tensor_name(kind: str, name: str | None) -> str:
    """Returns the name by which the ranks match one operation.

    In a graph: the user's `name`, or "<function>/<kind>", made unique inside that graph in the order of tracing, which
    is the same on all ranks. Two graphs may repeat a name: where TensorFlow puts both into one, a number tells them
    apart (tf_ops/ops/call_sites_pass.cc). Eager operations block, so there the kind is a sufficient name.
    """
    if name:
        return unique_name(name)
    return unique_name(threads.of_thread(f"eager.{kind}" if tf.executing_eagerly() else f"{_graph_name()}/{kind}"))


def unique_name(wanted: str, separator: str = "_") -> str:
    """Returns `wanted`; from its second use in the current graph on, with a number. In eager mode always `wanted`."""
    global _count
    if tf.executing_eagerly():
        return wanted
    _count += 1
    taken = _names_of_graph.setdefault(tf.compat.v1.get_default_graph(), set())
    # Every process set counts for itself: ranks in different sets trace different operations.
    process_set = process_sets.current()
    name, uses = wanted, 1
    while (process_set, name) in taken:
        uses += 1
        name = f"{wanted}{separator}{uses}"
    taken.add((process_set, name))
    return name


def count() -> int:
    """Returns the number of collectives that were put into graphs so far."""
    return _count


def reductions() -> int:
    """Returns the number of reductions in this session so far: buckets of plans, and requests by name."""
    stats = loader.core().stats()
    return int(stats["planned_buckets"] + stats["named_requests"])


def run_independently(outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns `outputs`, and lets the op behind them run as soon as its inputs are there. It still always runs.

    Our ops are stateful, so that TensorFlow neither folds, prunes nor merges them. Automatic control dependencies would
    therefore chain them one after the other in the order of tracing, and a reduction could neither overlap the backward
    pass nor wait for its neighbours.
    """
    outputs = list(outputs)
    if tf.executing_eagerly() or not outputs:
        return outputs
    op = outputs[0].op
    manager = getattr(op.graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(op)
    first = getattr(op.graph, _FIRST, None)
    if first is not None:
        op._add_control_input(first)
    return outputs


def collectives_so_far() -> list[tf.Operation]:
    """Returns the ops of the current function's graph that are our ops, or may contain such."""
    if tf.executing_eagerly() or is_for_session():
        return []
    operations = tf.compat.v1.get_default_graph().get_operations()
    return [op for op in operations if op.type.startswith("Smddp") or op.type in CALLS]


def let_wait_for(tensor: tf.Tensor) -> None:
    """Makes ops passed to `run_independently` later in this function run after the op that computes `tensor`."""
    if not tf.executing_eagerly() and not is_for_session():
        setattr(tensor.graph, _FIRST, tensor.op)


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Eager mode whatever is being traced, to make a variable.

    `tf.init_scope` does not leave a graph of TensorFlow 1, and has a function traced again that makes a variable.
    """
    with tf.Graph().as_default(), context.eager_mode():
        yield


def is_inside_session() -> bool:
    """True inside a graph of TensorFlow 1, and in functions that are traced for one."""
    with tf.init_scope():
        return not tf.executing_eagerly()


def is_for_session() -> bool:
    """True inside a graph of TensorFlow 1: a session may run any part of it, and its ops have no defined order."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def compiling() -> bool:
    """True while a function is traced that XLA will compile."""
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def is_alone() -> bool:
    """True where the code that is run or traced here concerns this rank only.

    A graph may run with more ranks later, so inside a graph it is true only in a process without MPI.
    """
    if process_sets.current_size() > 1:
        return False
    return tf.executing_eagerly() or not loader.core().mpi_initialized()


def device_scope(device: str) -> contextlib.AbstractContextManager[Any]:
    """`tf.device(device)`, or nothing for the empty string, which leaves the choice to TensorFlow."""
    return tf.device(device) if device else contextlib.nullcontext()


def _graph_name() -> str:
    name = getattr(tf.compat.v1.get_default_graph(), "name", None) or ""
    return _GRAPH_NUMBER.sub(r"\g<name>", name) or "graph"

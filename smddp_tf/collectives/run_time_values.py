"""The number of ranks and this process's rank, for code that may be traced: correct in each session in which it runs.

A graph may outlive the session it was traced in (elastic training), so it must not contain the number of ranks. It
contains an op, and where XLA compiles it, a variable that every new session sets.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp_tf import process_sets
from smddp_tf._native import loader
from smddp_tf.collectives import graph

_SIZE, _RANK = 0, 1

# By process set: its size and this process's rank in it (-1: not a member), for functions that XLA compiles.
_variables: dict[int, tf.Variable] = {}


def size(compiled: bool = False) -> Any:
    """Returns the number of ranks in the current process set.

    Args:
        compiled: bool, XLA will compile what is traced here although that cannot be detected, as with the gradient of a
            compiled function. Defaults to `False`.

    Returns:
        An int in eager mode, else a scalar tensor of dtype int64.
    """
    return _value(process_sets.current(), "size", compiled)


def rank(compiled: bool = False) -> Any:
    """Returns this process's number in the current process set; -1 where it is not a member.

    Args:
        compiled: see `size`.

    Returns:
        As of `size`.
    """
    return _value(process_sets.current(), "rank_in_set", compiled)


def global_rank(compiled: bool = False) -> Any:
    """Returns this process's number among all ranks, in the form that `size` returns."""
    return _value(0, "rank_in_set", compiled)


def while_outside(process_set: int, grads: list[Any]) -> list[Any]:
    """Returns `grads` of a rank outside the set; running a graph of them is an error once the rank is a member."""
    if tf.executing_eagerly() or graph.compiling():
        return grads
    included = loader.op_library().smddp_topology_value(what="included", process_set=process_set)
    message = (
        f"This graph was traced on a rank outside of process set {process_set}, so it reduces nothing; in this session "
        "the rank is a member. Re-create the tf.function, or compile the model again."
    )
    with tf.control_dependencies([tf.debugging.assert_none_equal(included, 1, message=message)]):
        return [None if grad is None else tf.identity(grad) for grad in grads]


def _value(process_set: int, what: str, compiled: bool) -> Any:
    if tf.executing_eagerly():
        return _numbers(process_set)[_SIZE if what == "size" else _RANK]
    if compiled or graph.compiling():
        return _for_xla(process_set)[_SIZE if what == "size" else _RANK]
    return graph.run_independently([loader.op_library().smddp_topology_value(what=what, process_set=process_set)])[0]


def _for_xla(process_set: int) -> Any:
    if graph.is_inside_session():  # which would have to initialise the variable
        return _numbers(process_set)
    if process_set not in _variables:
        with graph.eagerly():
            variable = tf.Variable(_numbers(process_set), trainable=False, dtype=tf.int64)
        _variables.setdefault(process_set, variable)  # another thread may have been faster
    return _variables[process_set]


def _set_variables() -> None:
    if not _variables:
        return  # `init` leaves TensorFlow alone, whose devices may still be configured
    existing = process_sets.process_set_ids()
    with graph.eagerly():
        for number, variable in _variables.items():
            if number in existing:
                variable.assign(_numbers(number))


def _numbers(process_set: int) -> list[int]:
    ranks, me = process_sets.ranks_of(process_set), loader.core().rank()
    return [len(ranks), ranks.index(me) if me in ranks else -1]


process_sets.after_change.append(_set_variables)

"""Copies state between ranks: variables of a model, and any Python object."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import process_sets
from smddp_tf._native.threads import of_thread
from smddp_tf._warn import warn
from smddp_tf.collectives import emit, graph, layouts, objects
from smddp_tf.collectives.objects import *  # noqa: F403
from smddp_tf.exceptions import reason_of
from smddp_tf.process_sets import ProcessSet, global_process_set

__all__ = ["broadcast_", "broadcast_global_variables", "broadcast_variables"]
__all__ += objects.__all__

# By id. `fit` asks whether a model's weights have been broadcast, and so whether it is meant for all ranks.
_broadcast: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_CANNOT_TRAVEL = (tf.resource, tf.variant)


@graph.collective
def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set, inplace: bool = False
) -> tf.Operation | None:
    """Gives every rank the values that the variables have on rank `root_rank`.

    Call it once at the start, so that all ranks train the same model: in eager mode, or inside the first `tf.function`
    step, after the first update has created the optimizer's variables. All numeric variables are sent in one
    operation, and variables of strings one by one. For other dtypes (tables) there is a warning, and they are not
    changed. Shards (of `DistributedEmbedding` and `partition_state`) are not changed.

    Example:
    >>> hvd.broadcast_variables(model.variables, root_rank=0)
    >>> hvd.broadcast_variables(optimizer.variables, root_rank=0)

    Args:
        variables: `tf.Variable`s or Keras variables, in the same order on all ranks.
        root_rank: integer, the rank among all ranks whose values all ranks get.
        process_set: the ranks that take part. Defaults to all.
        inplace: for Horovod's scripts; the values are the same either way. Defaults to `False`.

    Returns:
        In a graph of TensorFlow 1 the op that assigns, to be run in a session; in eager mode and `tf.function` None.
    """
    done = _assigned(_checked(variables), root_rank, None)
    return tf.group(*done) if graph.is_for_session() else None


@graph.collective
def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[tf.Tensor]:
    """`broadcast_variables` that returns the new values.

    Args:
        variables: list of `tf.Variable`s or Keras variables, the same on all ranks.
        root_rank: integer, the rank among all ranks whose values all ranks get.
        name: the name by which the ranks match this operation. Defaults to one made from the place in the graph.
        process_set: the ranks that take part. Defaults to all.

    Returns:
        The value of each variable after the broadcast, in the order given.

    Raises:
        ValueError: reference variables of TensorFlow 1 and resource variables are mixed.
    """
    variables = _checked(variables)
    if len({_is_reference(variable) for variable in variables}) > 1:
        references = ", ".join(variable.name for variable in variables if _is_reference(variable))
        raise ValueError(
            "`broadcast_` takes resource variables or reference variables (of TensorFlow 1), not both at once. "
            f"Received: {len(variables)} variables, of which these are references: {references}."
        )
    with tf.control_dependencies(_assigned(variables, root_rank, name)):
        return [tf.identity(tf.convert_to_tensor(variable)) for variable in variables]


def broadcast_global_variables(root_rank: int) -> tf.Operation | None:
    """Emits an op that gives every rank the values of all global variables on rank `root_rank`, in TensorFlow 1 graphs.

    Example:
    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     weight = tf.compat.v1.get_variable("weight", [3])
    ...     op = hvd.broadcast_global_variables(0)
    ...     session.run(tf.compat.v1.global_variables_initializer())
    ...     session.run(op)

    Args:
        root_rank: integer, the rank whose values all ranks get.

    Returns:
        The op that assigns the values, to be run in a session.

    Raises:
        RuntimeError: in eager mode, where TensorFlow keeps no list of variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution: there is no list of global variables. "
            "Use hvd.broadcast_variables(model.variables, root_rank=...), and the same for the optimizer's variables."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def _assigned(variables: list[Any], root_rank: int, name: str | None) -> list[Any]:
    """Sends and assigns; returns the assignments, for control dependencies."""
    variables = _that_can_travel(variables)
    texts = [variable for variable in variables if tf.as_dtype(variable.dtype) == tf.string]
    numbers = [variable for variable in variables if tf.as_dtype(variable.dtype) != tf.string]
    done = []
    if numbers:
        values = [tf.convert_to_tensor(variable) for variable in numbers]
        unique = graph.tensor_name("broadcast_variables", name)
        try:
            received = emit.broadcast_list(values, root_rank, unique)
        except tf.errors.FailedPreconditionError as error:
            raise _with_names(error, numbers) from error
        done += [variable.assign(value) for variable, value in zip(numbers, received)]
    for index, variable in enumerate(texts):
        unique = graph.tensor_name("broadcast_variables", f"{name or of_thread('broadcast_variables')}.text.{index}")
        done.append(variable.assign(_broadcast_strings(tf.convert_to_tensor(variable), root_rank, unique)))
    return [assignment for assignment in done if assignment is not None]


def first_difference(of_ranks: Sequence[Sequence[Any]]) -> Any:
    """Returns the first rank whose list differs from that of rank 0, and the first index where it does; else None."""
    pairs = ((other, itertools.zip_longest(of_ranks[0], theirs)) for other, theirs in enumerate(of_ranks))
    return next(((other, index) for other, both in pairs for index, (one, two) in enumerate(both) if one != two), None)


def _with_names(error: Any, variables: list[Any]) -> Any:
    """The error of a broadcast over all ranks, with the first variable that differs. All ranks have got the error."""
    if process_sets.current() or reason_of(error) != "tensors_differ":
        return error
    mine = [(getattr(v, "path", v.name), f"{tf.as_dtype(v.dtype).name} {list(v.shape)}") for v in variables]
    of_ranks = objects.allgather_object(mine, name=of_thread("broadcast_variables (which differ)"))
    other, index = first_difference([[kind for _, kind in each] for each in of_ranks])
    pair = of_ranks[0], of_ranks[other]
    root, differing = ([*map(" ".join, each), "no more"][min(index, len(each))] for each in pair)
    text = f"Mismatched variables: rank 0 has {root}, rank {other} has {differing}. Make the same model on all ranks."
    return tf.errors.FailedPreconditionError(None, None, f"{text} [smddp:tensors_differ]")


def _is_reference(variable: object) -> bool:
    return isinstance(variable, tf.compat.v1.Variable) and bool(getattr(variable.dtype, "_is_ref_dtype", False))


def were_broadcast(variables: Iterable[Any]) -> bool:
    """Returns whether this rank has passed one of these to `broadcast_variables`."""
    return any(_broadcast.get(id(own)) is own for own in map(layouts.identity, variables))


def _checked(variables: Any) -> list[Any]:
    if hasattr(variables, "assign"):
        raise TypeError(f"`variables` must be a list of variables. Received: one variable. Pass [{variables.name}].")
    checked = list(variables)
    for variable in checked:
        if not hasattr(variable, "assign"):
            raise TypeError(
                "`variables` must hold tf.Variables or Keras variables. "
                f"Received: an object of type {type(variable).__name__}. For tensors use hvd.broadcast."
            )
    _broadcast.update({id(own): own for own in map(layouts.identity, checked) if isinstance(own, tf.Variable)})
    return checked


def _that_can_travel(variables: list[Any]) -> list[Any]:
    skipped = [v for v in variables if tf.as_dtype(v.dtype) in _CANNOT_TRAVEL]
    if skipped:
        names = ", ".join(f"{getattr(v, 'path', v.name)} ({tf.as_dtype(v.dtype).name})" for v in skipped)
        warn(
            f"broadcast_variables left {len(skipped)} variables as they are, because their dtype cannot be sent: "
            f"{names}. Give them the same value on every rank yourself, for example with hvd.broadcast_object."
        )
    return [v for v in variables if layouts.layout_of(v) is None and not any(v is other for other in skipped)]


def _broadcast_strings(text: tf.Tensor, root_rank: int, name: str) -> tf.Tensor:
    """Returns the tensor of rank `root_rank` on every rank, sent as bytes; also in graphs.

    Takes the shape of `text` to be the same on all.
    """
    data = tf.io.decode_raw(tf.io.serialize_tensor(text), tf.uint8)
    size = tf.size(data, out_type=tf.int64)
    size_of_root = emit.broadcast_list([size], root_rank, f"{name}.size")[0]
    # Only the root's bytes matter; the others pass the same number.
    fitting = tf.concat([data[:size_of_root], tf.zeros([tf.maximum(size_of_root - size, 0)], tf.uint8)], 0)
    received = emit.broadcast_list([fitting], root_rank, f"{name}.data")[0]
    byte = tf.constant([bytes([value]) for value in range(256)])
    joined = tf.strings.reduce_join(tf.gather(byte, tf.cast(received, tf.int32)))
    return tf.ensure_shape(tf.io.parse_tensor(joined, tf.string), text.shape)

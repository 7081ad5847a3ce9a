"""Copies state between ranks: variables of a model, and any Python object."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from smddp_tf import _graph, _native, basics
from smddp_tf.objects import allgather_object, broadcast_object

__all__ = ["allgather_object", "broadcast_object", "broadcast_variables"]


@_graph.as_it_is
def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Gives every rank the values that the variables have on rank `root_rank`.

    Call it once at the start, so that all ranks train the same model: in eager mode, or inside the first `tf.function`
    step, after the first update has created the optimizer's variables. All variables travel in one operation.

    Example:
    >>> hvd.broadcast_variables(model.variables, root_rank=0)
    >>> hvd.broadcast_variables(optimizer.variables, root_rank=0)

    Args:
        variables: `tf.Variable`s or Keras variables, in the same order on all ranks. Those that hold no numbers
            (strings, tables) are left as they are, with a warning.
        root_rank: the rank whose values everybody gets.
    """
    basics.size()
    variables = _with_numbers(_checked(variables))
    if not variables:
        return
    name = _graph.tensor_name("broadcast_variables", None)
    received = _native.broadcast_list([tf.convert_to_tensor(v) for v in variables], root_rank, name)
    for variable, value in zip(variables, received):
        variable.assign(value)


def _checked(variables: Any) -> list[Any]:
    if hasattr(variables, "assign"):
        raise TypeError(f"`variables` must be a list of variables. Received: one variable. Pass [{variables.name}].")
    variables = list(variables)
    for variable in variables:
        if not hasattr(variable, "assign"):
            raise TypeError(
                "`variables` must hold tf.Variables or Keras variables. "
                f"Received: an object of type {type(variable).__name__}. For tensors use hvd.broadcast."
            )
    return variables


def _with_numbers(variables: Iterable[Any]) -> list[Any]:
    variables = list(variables)
    skipped = [v for v in variables if tf.as_dtype(v.dtype) in (tf.string, tf.resource, tf.variant)]
    if skipped:
        names = ", ".join(f"{getattr(v, 'path', v.name)} ({tf.as_dtype(v.dtype).name})" for v in skipped)
        warnings.warn(
            f"broadcast_variables left {len(skipped)} variables as they are, because their dtype cannot travel: "
            f"{names}. Give them the same value on every rank yourself, for example with hvd.broadcast_object.",
            stacklevel=3,
        )
    return [v for v in variables if not any(v is other for other in skipped)]

"""The reductions, as numbers that the engine and Horovod share. Needs no TensorFlow."""

from __future__ import annotations

import enum
from typing import NamedTuple

from smddp_tf._warn import warn


class ReduceOp(enum.IntEnum):
    """The operation that combines the values of all ranks. The numbers are Horovod's."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average = ReduceOp.Average
"""The mean over all ranks."""
Sum = ReduceOp.Sum
"""The sum over all ranks."""
Adasum = ReduceOp.Adasum
"""The adaptive sum (Maleki et al. 2020)."""
Min = ReduceOp.Min
"""The smallest of all ranks, element by element."""
Max = ReduceOp.Max
"""The largest of all ranks, element by element."""
Product = ReduceOp.Product
"""The product over all ranks."""


class ReduceSpec(NamedTuple):
    """A reduction in full: result = op over ranks of (value * prescale) * postscale.

    `wire_dtype`: "float16" or "bfloat16": wider floating tensors are sent in this dtype; "int8": sent between nodes as
    8-bit blocks; "auto": chosen from these by the rate of the link; "": sent as they are.
    """

    op: ReduceOp = Average
    prescale: float = 1.0
    postscale: float = 1.0
    wire_dtype: str = ""


def as_reduce_op(op: int, allowed: tuple[ReduceOp, ...] = tuple(ReduceOp)) -> ReduceOp:
    """Checks a reduction.

    Args:
        op: integer or `ReduceOp`.
        allowed: the reductions that the caller supports. Defaults to all.

    Returns:
        `op` as a `ReduceOp`.

    Raises:
        ValueError: `op` is not one of `allowed`.
    """
    is_op = op in tuple(ReduceOp) and not isinstance(op, bool)
    if is_op and op in allowed:
        return ReduceOp(op)
    names = ", ".join(f"hvd.{member.name}" for member in allowed)
    hint = f" `hvd.allreduce` takes hvd.{ReduceOp(op).name}." if is_op else ""
    raise ValueError(f"`op` must be one of {names}. Received: op={op!r}.{hint}")


def resolve_average(op: int | None, average: bool | None) -> ReduceOp:
    """Merges `op` with the deprecated argument `average`.

    Args:
        op: a reduction, or None.
        average: bool, True for Average and False for Sum; or None.

    Returns:
        The `ReduceOp`; Average where both are None.

    Raises:
        ValueError: both are given, or `op` is no reduction.
    """
    if average is None:
        return Average if op is None else as_reduce_op(op)
    if op is not None:
        raise ValueError(
            "`op` and `average` say the same thing, so only one of them may be given. "
            f"Received: op={op!r}, average={average!r}. Remove `average`, which is deprecated."
        )
    chosen = Average if average else Sum
    warn(f"`average={average}` is deprecated: write `op=hvd.{chosen.name}`.", DeprecationWarning)
    return chosen

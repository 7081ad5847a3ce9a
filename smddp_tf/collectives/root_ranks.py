"""The argument `root_rank`: checked at the call, so that the error names it and no rank waits."""

from __future__ import annotations

import operator

from smddp_tf import process_sets
from smddp_tf._native import loader


def checked_root(root_rank: object) -> int:
    """`root_rank` as an int: the number, among all ranks, of a rank in the current process set.

    Before `init` only its type can be checked.

    Raises:
        ValueError: it is not such a number.
    """
    if isinstance(root_rank, bool) or not hasattr(root_rank, "__index__"):
        raise ValueError(_no_integer(root_rank))
    try:
        number = operator.index(root_rank)
    except TypeError:  # a tensor of another dtype or shape, or one that has no value yet
        raise ValueError(_no_integer(root_rank)) from None
    if loader.core().is_initialized():
        _check_exists(number)
    return number


def _no_integer(root_rank: object) -> str:
    return (
        "`root_rank` must be an integer, the number of a rank. "
        f"Received: root_rank={root_rank!r} (of type {type(root_rank).__name__})."
    )


def _check_exists(number: int) -> None:
    size, ranks = loader.core().size(), process_sets.ranks_of(process_sets.current())
    if not 0 <= number < size:
        raise ValueError(f"`root_rank` must be from 0 to {size - 1}. Received: root_rank={number}.")
    if number not in ranks:
        raise ValueError(
            f"`root_rank` must be a rank of the process set, which has the ranks {list(ranks)}. "
            f"Received: root_rank={number}. A root is named by its number among all ranks."
        )

"""The argument `root_rank`: checked at the call, so that the error names it and no rank waits."""

from __future__ import annotations

import operator
from typing import Any

from smddp_tf import process_sets
from smddp_tf._native import loader


def checked_root(root_rank: object) -> int:
    """`root_rank` as an int: the number, among all ranks, of a rank in the current process set.

    Before `init` only its type can be checked.

    Raises:
        ValueError: it is not such a number.
    """
    given: Any = None if isinstance(root_rank, bool) else root_rank
    try:
        number = operator.index(given)
    except TypeError:  # also of a tensor of another dtype or shape, or one that has no value yet
        raise ValueError(
            "`root_rank` must be an integer, the number of a rank. "
            f"Received: root_rank={root_rank!r} (of type {type(root_rank).__name__})."
        ) from None
    if not loader.core().is_initialized():
        return number
    size, ranks = loader.core().size(), process_sets.ranks_of(process_sets.current())
    if not 0 <= number < size:
        raise ValueError(f"`root_rank` must be from 0 to {size - 1}. Received: root_rank={number}.")
    if number not in ranks:
        raise ValueError(
            f"`root_rank` must be a rank of the process set, which has the ranks {list(ranks)}. "
            f"Received: root_rank={number}. A root is named by its number among all ranks."
        )
    return number

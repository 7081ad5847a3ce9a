"""Horovod's `groups`: which gradients to reduce together. Checked, and then not needed.

Horovod fuses whatever happens to be ready, so its users group gradients to make that the same in every run. Here the
buckets follow from the list of gradients alone, and are the same in every run and on every rank.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from smddp_tf._warn import warn


def check_groups(groups: Any, num_groups: int = 0) -> None:
    """Raises what Horovod raises for arguments that are none.

    Args:
        groups: a positive number of groups, a list of lists of variables, or None.
        num_groups: the deprecated name for the number; 0 for none.

    Raises:
        ValueError: `groups` is none of these.
    """
    if num_groups != 0:
        warn("`num_groups` is deprecated: write `groups`.", DeprecationWarning)
        groups = num_groups if groups is None else groups
    if groups is None or _is_positive_number(groups) or _is_list_of_lists_of_variables(groups):
        return
    raise ValueError(
        f"`groups` must be a positive integer or a list of lists of variables. Received: groups={groups!r}. "
        "Leave it out: buckets are the same in every run without it."
    )


def _is_positive_number(groups: Any) -> bool:
    if isinstance(groups, bool):
        return False
    try:
        return operator.index(groups) > 0
    except TypeError:
        return False


def _is_list_of_lists_of_variables(groups: Any) -> bool:
    return isinstance(groups, Sequence) and all(
        isinstance(group, Sequence) and all(hasattr(variable, "assign") for variable in group) for group in groups
    )

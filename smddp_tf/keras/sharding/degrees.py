"""The number of ranks that share the state of an optimizer, and the shard of each of them."""

from __future__ import annotations

from typing import Any

from smddp_tf import basics
from smddp_tf._native import loader


def possible_degrees() -> list[int]:
    """The degrees that the ranks of this job allow, in order: 1, ..., all ranks."""
    ranks, local = basics.size(), basics.local_size()
    if not basics.is_homogeneous():
        return sorted({1, ranks})
    return [k for k in range(1, ranks + 1) if ranks % k == 0 and (local % k == 0 or k % local == 0)]


def degree_of(partition_state: str | int | None) -> int:
    """The number of shards that the argument `partition_state` asks for; 1: every rank has all of the state.

    Args:
        partition_state: None; "node" or "world", the ranks of one node or all ranks; or an integer. With one rank only
            all of them mean 1.

    Raises:
        ValueError: it is none of these, or the ranks of this job cannot be divided so.
    """
    asked: Any = partition_state
    is_number = hasattr(asked, "__index__") and not isinstance(asked, bool)
    if asked is not None and asked not in ("node", "world") and not (is_number and asked >= 1):
        raise ValueError(
            '`partition_state` must be None, "node", "world" or an integer of at least 1. Received: '
            f"partition_state={asked!r}."
        )
    if asked is None or basics.size() == 1:
        return 1
    uneven_nodes = asked == "node" and not basics.is_homogeneous()
    degree = {"node": basics.local_size(), "world": basics.size()}.get(asked) or int(asked)
    possible = possible_degrees()
    if uneven_nodes or degree not in possible:
        raise ValueError(
            f"`partition_state` must divide the {basics.size()} ranks, and divide the ranks of a node or be a multiple "
            f"of them ({basics.local_size()} here; the nodes must be equally large for all but 1 and {basics.size()}). "
            f"Received: partition_state={asked!r}. Possible here: {', '.join(map(str, possible))}."
        )
    return degree


def shard_indices(degree: int) -> tuple[int, ...]:
    """Returns for each rank the index of its shard, of `degree` shards."""
    if not basics.is_homogeneous():  # then there is a shard for each rank
        return tuple(range(degree))
    return tuple(loader.core().places_in_parts(0, degree))

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


def degree_of(shard: Any) -> int:
    """The number of parts that the argument `shard` asks for; 1: every rank has all of the state.

    Args:
        shard: None; "node" or "world", the ranks of one node or all ranks; or an integer. With one rank only all of
            them mean 1.

    Raises:
        ValueError: it is none of these, or the ranks of this job cannot be divided so.
    """
    is_number = hasattr(shard, "__index__") and not isinstance(shard, bool)
    if shard is not None and shard not in ("node", "world") and not (is_number and shard >= 1):
        raise ValueError(
            f'`shard` must be None, "node", "world" or an integer of at least 1. Received: shard={shard!r}.'
        )
    if shard is None or basics.size() == 1:
        return 1
    uneven_nodes = shard == "node" and not basics.is_homogeneous()
    degree = {"node": basics.local_size(), "world": basics.size()}.get(shard) or int(shard)
    possible = possible_degrees()
    if uneven_nodes or degree not in possible:
        raise ValueError(
            f"`shard` must divide the {basics.size()} ranks, and divide the ranks of a node or be a multiple of them "
            f"({basics.local_size()} here; the nodes must be equally large for all but 1 and {basics.size()}). "
            f"Received: shard={shard!r}. Possible here: {', '.join(map(str, possible))}."
        )
    return degree


def places(degree: int) -> tuple[int, ...]:
    """For each rank, which of the `degree` parts it has."""
    if not basics.is_homogeneous():  # then all ranks share the parts
        return tuple(range(degree))
    return tuple(loader.core().places_in_parts(0, degree))

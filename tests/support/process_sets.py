"""The process sets of the tests: all ranks but the last, all but the first, the even and the odd ones. They overlap."""

from __future__ import annotations

import numpy as np

Sets = dict[str, "object"]


def layout(size: int) -> dict[str, list[int]]:
    """Different parts of the ranks; at 2 ranks there are only two."""
    wanted = {
        "low": list(range(size - 1)),
        "high": list(range(1, size)),
        "even": list(range(0, size, 2)),
        "odd": list(range(1, size, 2)),
    }
    return {name: ranks for i, (name, ranks) in enumerate(wanted.items()) if ranks not in list(wanted.values())[:i]}


def value_of(rank: int, length: int = 3) -> np.ndarray:
    return (rank + 1) * np.arange(1, length + 1, dtype=np.float32)


def mine(sets: Sets) -> list:
    return [process_set for process_set in sets.values() if process_set.included()]

"""From when to when something lasted, by blocks of ten steps: single steps vary too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from smddp_tf.insight.recording import Numbers

BLOCK = 10


class Span(NamedTuple):
    """Consecutive blocks: from `first` to the one before `end`, of `total`."""

    first: int
    end: int
    total: int

    @property
    def blocks(self) -> slice:
        """The indices of the blocks of the span."""
        return slice(self.first, self.end)

    @property
    def steps(self) -> slice:
        """The indices of the steps in these blocks; to the last step where no block follows."""
        return slice(self.first * BLOCK, self.end * BLOCK if self.end < self.total else None)

    def figures(self, numbers: Numbers) -> dict[str, Any]:
        """Returns the ranges of steps in which the span begins and ends, and a text. `numbers`: of the steps."""
        since = _around(numbers, self.first) if self.first else (0, int(numbers[BLOCK // 2]))
        until = _around(numbers, self.end) if self.end < self.total else None
        begin = f"from a step between {since[0]} and {since[1]}" if self.first else "from the beginning"
        end = f"to one between {until[0]} and {until[1]}" if until else "to the end"
        return {"since": since, "until": until, "when": f"{begin} {end}" if self.first or until else "in all steps"}


def blocks(column: Numbers, of: Callable[..., Any] = np.median) -> Numbers:
    """The last dimension in blocks."""
    count = column.shape[-1] // BLOCK
    return np.asarray(of(column[..., : count * BLOCK].reshape(*column.shape[:-1], count, BLOCK), axis=-1))


def longest_run(late: Numbers) -> Span:
    """Of blocks that are late; a single one that is not does not end it."""
    closed = np.concatenate([[False], late, [False]])
    closed[1:-1] |= closed[:-2] & closed[2:]
    edges = np.flatnonzero(np.diff(closed.astype(int))).reshape(-1, 2).tolist()
    first, end = max(edges, key=lambda edge: edge[1] - edge[0], default=(0, 0))
    return Span(first, end, len(late))


def _around(numbers: Numbers, block: int) -> tuple[int, int]:
    """Where the first changed step may be: the median of a block changes when about half of its steps have."""
    low, high = (numbers[min(block * BLOCK + more, len(numbers) - 1)] for more in (-BLOCK // 2, BLOCK // 2))
    return int(low), int(high)

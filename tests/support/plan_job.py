"""Ranks that are threads of this process and hand over the gradients of plans, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import native_module
from tests.support.layouts import LAYOUTS

_core = native_module.core()

SUM = 1
ELEMENTS = [700, 20, 3000]  # two buckets: of the first two, and of the last

over_layouts = pytest.mark.parametrize("layout", ["2", "1+1", "2+1"])


class Job:
    """Ranks that use plans as TensorFlow does: a run hands over the tensors of one step, and then waits for them."""

    def __init__(self, layout: str) -> None:
        self.size = len(LAYOUTS[layout])
        self.ranks = _core.Ranks(LAYOUTS[layout])
        self.runs = [0] * self.size

    def plan(self, key: str, elements: list[int] = ELEMENTS) -> list[int]:
        return [self.ranks.plan(rank, key, elements, SUM) for rank in range(self.size)]

    def begin(
        self, rank: int, plan: int, step: int, places: Any = None, elements: list[int] = ELEMENTS, **where: Any
    ) -> Begun:
        """Hands over the tensors at `places` (default: all) of a step, which make one run."""
        self.runs[rank] += 1
        return Begun(self, rank, plan, step, elements, {"run": self.runs[rank], **where}).add(
            range(len(elements)) if places is None else places
        )

    def step(self, plans: list[int], step: int, elements: list[int] = ELEMENTS, **where: Any) -> None:
        begun = [self.begin(rank, plans[rank], step, None, elements, **where) for rank in range(self.size)]
        for each in begun:
            each.check(range(self.size))


def values(elements: int, *key: int) -> np.ndarray:
    """Whole numbers, different for every key and place; their sums are exact."""
    offset = sum((3 + 2 * i) * part for i, part in enumerate(key))
    return ((np.arange(elements) * 7 + offset * 13) % 251 + 1).astype(np.float32)


class Begun:
    def __init__(self, job: Job, rank: int, plan: int, step: int, elements: list[int], where: dict[str, int]) -> None:
        self.job, self.rank, self.plan, self.of_step, self.elements, self.where = job, rank, plan, step, elements, where
        self.arrays: dict[int, np.ndarray] = {}
        self.pending: dict[int, Any] = {}

    def add(self, places: Any) -> Begun:
        for place in places:
            array = values(self.elements[place], self.rank, self.of_step, place, self.plan)
            self.arrays[place] = array
            self.pending[place] = self.job.ranks.gradient(self.rank, self.plan, place, array, **self.where)
        return self

    def cancel(self) -> Begun:
        self.job.ranks.cancel(self.rank, self.plan, 0, self.where["run"])
        return self

    def check(self, ranks: Any) -> None:
        for place, pending in self.pending.items():
            pending.wait()
            expected = sum(values(self.elements[place], rank, self.of_step, place, self.plan) for rank in ranks)
            np.testing.assert_array_equal(self.arrays[place], expected, err_msg=f"tensor {place}, rank {self.rank}")

    def fails_after(self, culprit: int) -> None:
        """It is an error that names the rank `culprit`, which gave up the step.

        Another rank that hears of it between two of its own tensors gives up the step as well. A third rank may hear
        of that before, and names that one then.
        """
        names = {culprit} if self.job.size == 2 else set(range(self.job.size)) - {self.rank}
        self.fails(f"Rank [{''.join(map(str, sorted(names)))}] gave up a step")

    def fails(self, match: str) -> None:
        for pending in self.pending.values():
            with pytest.raises(_core.EngineError, match=match):
                pending.wait()

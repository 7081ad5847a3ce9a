"""What is measured, in words that a worker in any environment understands; and the values that prove a result."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.shapes import MODELS

__all__ = ["Case", "expected_sum", "input_values", "wrong_elements"]

PERIOD = 1021  # prime, so that no shard or chunk begins where a period does


@dataclass(frozen=True)
class Case:
    """One thing to reduce through one door.

    Attributes:
        door: "array" (NumPy, in place), "function" (one tensor in a `tf.function`), or for a model's gradients "list"
            (an op for each, as in training) and "grouped" (one op for all).
        bytes: of float32 values, in total.
        model: whose gradients; empty for one tensor.
    """

    door: str
    bytes: int
    model: str = ""

    @property
    def label(self) -> str:
        return f"{self.door} {self.model or self.bytes}"

    def shapes(self) -> list[tuple[int, ...]]:
        return MODELS[self.model]() if self.model else [(self.bytes // 4,)]

    def as_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def input_values(rank: int, shape: Sequence[int], place: int = 0) -> np.ndarray:
    """Whole numbers that differ per rank, position and `place` (of the tensor in a list); their sum is exact."""
    one_period = np.roll(np.arange(PERIOD, dtype=np.float32), -13 * place) + np.float32(7 * rank)
    return np.resize(one_period, shape)


def expected_sum(ranks: int, shape: Sequence[int], place: int = 0) -> np.ndarray:
    """The sum of `input_values` over all ranks."""
    return input_values(0, shape, place) * ranks + np.float32(7 * sum(range(ranks)))


def wrong_elements(result: np.ndarray, ranks: int, place: int = 0, divisor: int = 1) -> int:
    """How many elements differ from the exact sum divided by `divisor`, which must be a power of two."""
    return int(np.count_nonzero(result != expected_sum(ranks, result.shape, place) / np.float32(divisor)))

"""What is measured, in words that a worker in any environment understands; and the values that prove a result."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.shapes import MODELS

__all__ = ["EXACT", "EXACT_IN_BFLOAT16", "Case", "Values", "expected_sum", "input_values", "wrong_elements"]


@dataclass(frozen=True)
class Values:
    """Position modulo `period`, a prime, so that no shard or chunk begins where a period does; plus `step` x rank."""

    period: int
    step: int


EXACT = Values(1021, 7)
# Small enough that also the sum over 8 ranks is exact in bfloat16: below 256.
EXACT_IN_BFLOAT16 = Values(17, 1)


@dataclass(frozen=True)
class Case:
    """One thing to reduce through one door.

    Attributes:
        door: "array" (NumPy, in place), "bfloat16" (the same, with that dtype on the wire), "function" (one tensor in
            a `tf.function`), "reducescatter" (each rank gets a row);
            for a model's gradients "list" (an op for each, as in training), "grouped" (one for all).
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


def input_values(rank: int, shape: Sequence[int], place: int = 0, values: Values = EXACT) -> np.ndarray:
    """Whole numbers that differ per rank, position and `place` (of the tensor in a list); their sum is exact."""
    one_period = np.roll(np.arange(values.period, dtype=np.float32), -13 * place) + np.float32(values.step * rank)
    return np.resize(one_period, shape)


def expected_sum(ranks: int, shape: Sequence[int], place: int = 0, values: Values = EXACT) -> np.ndarray:
    """The sum of `input_values` over all ranks."""
    return input_values(0, shape, place, values) * ranks + np.float32(values.step * sum(range(ranks)))


def wrong_elements(result: np.ndarray, ranks: int, place: int = 0, divisor: int = 1, values: Values = EXACT) -> int:
    """How many elements differ from the exact sum divided by `divisor`, which must be a power of two."""
    return int(np.count_nonzero(result != expected_sum(ranks, result.shape, place, values) / np.float32(divisor)))

"""What is measured, in words that a worker in any environment understands; and the values that prove a result."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.shapes import MODELS

__all__ = [
    "EXACT",
    "EXACT_IN_BFLOAT16",
    "GATHERS",
    "STEPS",
    "Case",
    "Values",
    "brought",
    "expected_sum",
    "input_values",
    "least_bytes",
    "wrong_elements",
]


@dataclass(frozen=True)
class Values:
    """Position modulo `period`, a prime, so that no slice or chunk begins where a period does; plus `step` x rank."""

    period: int
    step: int


GATHERS = ("allgather", "ragged", "broadcast")
# Training steps, two by two without and with the other ranks.
STEPS = ("alone", "tape", "applied", "optimizer")
EXACT = Values(1021, 7)
# Small enough that also the sum over 8 ranks is exact in bfloat16: below 256.
EXACT_IN_BFLOAT16 = Values(17, 1)


@dataclass(frozen=True)
class Case:
    """One thing to reduce through one door.

    Attributes:
        door: "array" (NumPy, in place, asked of the engine), "bfloat16" and "int8" (the same, with that on the wire),
            "eager" (`hvd.allreduce` of a NumPy array), "function" (one tensor in a `tf.function`), "plus" (`x + 1`
            instead), "reducescatter" (each rank gets a row), "allgather" (equal blocks), "ragged" (rank r brings r
            parts), "broadcast" (from the last rank);
            for a model's gradients "list" (an op for each, as in training), "named" (an allreduce for each), "grouped"
            (one for all), and `STEPS`.
        bytes: of float32 values, in total; of a gather those of the result.
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


def brought(door: str, rank: int, ranks: int) -> float:
    """The part of a gather's result that a rank brings."""
    if door == "broadcast":
        return float(rank == ranks - 1)
    return rank / sum(range(ranks)) if door == "ragged" else 1 / ranks


def least_bytes(door: str, nodes: int, per_node: int) -> float:
    """What a node must send or receive at the least, whichever is more, in parts of `Case.bytes`."""
    if door in GATHERS:
        ranks = nodes * per_node
        parts = [brought(door, rank, ranks) for rank in range(ranks)]
        return 1 - min(sum(parts[node * per_node :][:per_node]) for node in range(nodes))
    return (1 if door == "reducescatter" else 2) * (nodes - 1) / nodes

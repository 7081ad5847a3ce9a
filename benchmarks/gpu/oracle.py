"""What the GPU's kernels must give: the CPU's, which NumPy has checked (tests/compute)."""

from __future__ import annotations

import numpy as np

from benchmarks.gpu.lists import ITEM_BYTES
from benchmarks.gpu.memory import numpy_dtype
from tests.native_module import core

__all__ = ["cast", "differing", "random_bytes"]

FLOATS = ("float16", "bfloat16", "float32", "float64")


def random_bytes(dtype: str, elements: int, seed: int, ordinary: bool = False) -> np.ndarray:
    """Values as bytes. Every bit pattern, infinities and NaNs among them; with `ordinary` normally distributed numbers.

    A long array repeats a shorter one of prime length: drawing 110 million numbers takes longer than checking them.
    """
    rng = np.random.default_rng(seed)
    drawn = min(elements, 1_000_003)
    size = ITEM_BYTES[dtype]
    if ordinary and dtype in FLOATS:
        values = rng.standard_normal(drawn, np.float32).astype(numpy_dtype(dtype)).view(np.uint8)
    else:
        values = rng.integers(0, 256, drawn * size, dtype=np.uint8)
    return np.resize(values, elements * size)


def cast(source: np.ndarray, dtype: str, to: str, elements: int, factor: float = 1.0, divisor: int = 1) -> np.ndarray:
    """Compute::Cast, on bytes."""
    into = np.empty(elements * ITEM_BYTES[to], np.uint8)
    core().compute_cast("auto", into, to, source, dtype, elements, factor, divisor)
    return into


def differing(got: np.ndarray, expected: np.ndarray, dtype: str) -> int:
    """Elements whose bits differ. Any NaN stands for any other: IEEE 754 leaves their bits open."""
    if got.shape != expected.shape:
        raise ValueError(f"Expected {expected.size} bytes. Received: {got.size}.")
    if np.array_equal(got, expected):
        return 0
    differ = (got.reshape(-1, ITEM_BYTES[dtype]) != expected.reshape(-1, ITEM_BYTES[dtype])).any(axis=1)
    if dtype in FLOATS:
        differ &= ~(np.isnan(got.view(numpy_dtype(dtype))) & np.isnan(expected.view(numpy_dtype(dtype))))
    return int(np.count_nonzero(differ))

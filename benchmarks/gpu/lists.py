"""Lists of gradients and where they lie in device memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.shapes import MODELS

__all__ = ["ITEM_BYTES", "GradientList", "Layout", "model_list", "placed", "random_list", "small_list"]

ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "uint8": 1, "int32": 4, "int64": 8}
TENSORFLOWS_ALIGNMENT = 256  # bytes, of its GPU allocator


@dataclass(frozen=True)
class GradientList:
    """Elements of each tensor of a list.

    Attributes:
        name: for tables.
        elements: of each tensor; 0 is allowed.
        aligned: as TensorFlow's allocator gives memory; else anywhere that an element may begin.
    """

    name: str
    elements: tuple[int, ...]
    aligned: bool = True

    @property
    def total(self) -> int:
        return sum(self.elements)


@dataclass(frozen=True)
class Layout:
    """Where the tensors of a list begin, in bytes from the start of one allocation; `bytes` is its size."""

    starts: tuple[int, ...]
    bytes: int


def model_list(model: str) -> GradientList:
    """The gradients of a model of `benchmarks.shapes`, in the order in which they are declared."""
    return GradientList(model, tuple(math.prod(shape) for shape in MODELS[model]()))


def small_list(model: str, divisor: int) -> GradientList:
    """As many tensors as the model has, each a `divisor`-th of the size: for the fake GPU and for slow tools."""
    of = model_list(model)
    return GradientList(f"{model}/{divisor}", tuple(-(-elements // divisor) for elements in of.elements))


def random_list(seed: int, tensors: int, most: int) -> GradientList:
    """Sizes of all magnitudes up to `most`, some of them 0 and 1, at addresses that are aligned to an element only."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(0, math.log(most), tensors)).astype(int)
    sizes[rng.integers(0, tensors, max(1, tensors // 16))] = 0
    sizes[rng.integers(0, tensors, max(1, tensors // 16))] = 1
    return GradientList(f"random {seed}", tuple(int(size) for size in sizes), aligned=False)


def placed(gradients: GradientList, item_bytes: int, seed: int = 0) -> Layout:
    """Tensors one after the other, as TensorFlow's allocator would, or with gaps of a few elements between them."""
    rng = np.random.default_rng(seed)
    starts, at = [], 0
    for elements in gradients.elements:
        if gradients.aligned:
            at = -(-at // TENSORFLOWS_ALIGNMENT) * TENSORFLOWS_ALIGNMENT
        else:
            at += item_bytes * int(rng.integers(1, 9))
        starts.append(at)
        at += elements * item_bytes
    return Layout(tuple(starts), at + TENSORFLOWS_ALIGNMENT)


def addresses(layout: Layout, base: int) -> Sequence[int]:
    """The starts as addresses, for an allocation at `base`."""
    return [base + start for start in layout.starts]

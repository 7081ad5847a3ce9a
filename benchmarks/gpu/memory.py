"""A GPU as the checks use it, through `tests.native_module`: the same for a real and for a fake one."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tests.native_module import core

__all__ = ["Block", "Machine", "numpy_dtype"]

POISON = 0xA5  # outputs are filled with it before every check


class Machine:
    """One device, one stream, and what was allocated there."""

    def __init__(self, index: int = 0) -> None:
        self.gpu = core().Gpu(index)
        self.info = self.gpu.info()
        self.stream = self.gpu.stream()
        self.fake = bool(os.environ.get("SMDDP_GPU_LIBRARY"))

    def wait(self) -> None:
        self.gpu.synchronize(self.stream)

    def block(self, size: int) -> Block:
        return Block(self, size)

    def from_array(self, array: np.ndarray) -> Block:
        block = Block(self, max(1, array.nbytes))
        block.upload(array)
        return block


class Block:
    """Device memory; give it back with `free` or `with`."""

    def __init__(self, machine: Machine, size: int) -> None:
        self.machine = machine
        self.bytes = max(1, size)
        self.address = machine.gpu.allocate(self.bytes)

    def upload(self, array: np.ndarray, offset: int = 0) -> None:
        """Returns when the array may be changed again."""
        array = np.ascontiguousarray(array)
        self._inside(offset, array.nbytes)
        self.machine.gpu.copy(self.address + offset, array.ctypes.data, array.nbytes, self.machine.stream)
        self.machine.wait()

    def download(self, size: int | None = None, offset: int = 0) -> np.ndarray:
        """Bytes."""
        into = np.empty(self.bytes - offset if size is None else size, np.uint8)
        self._inside(offset, into.nbytes)
        self.machine.gpu.copy(into.ctypes.data, self.address + offset, into.nbytes, self.machine.stream)
        self.machine.wait()
        return into

    def poison(self) -> None:
        self.upload(np.full(self.bytes, POISON, np.uint8))

    def free(self) -> None:
        if self.address:
            self.machine.gpu.free(self.address)
        self.address = 0

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *_: Any) -> None:
        self.free()

    def _inside(self, offset: int, size: int) -> None:
        if offset < 0 or offset + size > self.bytes:
            raise ValueError(f"Expected bytes inside of {self.bytes}. Received: {size} from {offset}.")


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's dtype, bfloat16 from ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)

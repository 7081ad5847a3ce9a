"""What the GPU kernels sum, and what they count: their code, compiled for the processor, against the CPU's kernels."""

import ctypes

import numpy as np
import pytest

from tests.gpu.cuda_kernels import GRIDS, addresses, guarded, untouched, values
from tests.native.compute_oracle import (
    FLOATS,
    SUM,
    reduce,
    same,
)


def test_the_count_grows(kernels):
    array = guarded(100, "float32", 0, np.inf)[0]
    sources = addresses([array, array])
    found = np.array([5], np.uint64)
    for _ in range(2):
        kernels.kernels_sum(
            *(array.ctypes.data_as(ctypes.c_void_p), sources.ctypes.data_as(ctypes.c_void_p), 2, ctypes.c_int64(100)),
            *(b"float32", found.ctypes.data_as(ctypes.c_void_p), 1, 32),
        )
    assert found[0] == 205


@np.errstate(invalid="ignore")
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 64])
def test_sums_are_what_the_cpu_does(kernels, count, name):
    for trial, length in enumerate((0, 1, 17, 2048, 9001)):
        offset = trial % 3
        sources = [guarded(length, name, offset, values(name, length, 100 * count + i))[0] for i in range(count)]
        if trial % 2:
            sources[count // 2] = guarded(length, name, offset + 1, sources[count // 2])[0]  # not aligned as the others
        expected = reduce("auto", name, SUM, sources) if length else sources[0]
        into, room = guarded(length, name, offset)
        found = np.zeros(1, np.uint64)
        self_sum = trial == 3  # in place of the last source
        target = sources[-1] if self_sum else into
        pointers = addresses(sources)
        launches = kernels.kernels_sum(
            *(target.ctypes.data_as(ctypes.c_void_p), pointers.ctypes.data_as(ctypes.c_void_p), count),
            *(ctypes.c_int64(length), name.encode(), found.ctypes.data_as(ctypes.c_void_p), *GRIDS[trial % 4]),
        )
        assert launches == (1 if length else 0)
        same(target, expected, nan_bits=count == 1)
        assert untouched(into, room)
        assert found[0] == np.count_nonzero(~np.isfinite(expected))


def test_a_sum_of_negative_zeros(kernels):
    for name in FLOATS:
        arrays = [guarded(40, name, 1, -0.0)[0] for _ in range(3)]
        into, _ = guarded(40, name, 1)
        pointers = addresses(arrays)
        kernels.kernels_sum(
            *(into.ctypes.data_as(ctypes.c_void_p), pointers.ctypes.data_as(ctypes.c_void_p), 3, ctypes.c_int64(40)),
            *(name.encode(), None, 2, 8),
        )
        same(into, arrays[0])


def test_sums_that_are_refused(kernels):
    pointers = np.zeros(65, np.uintp)
    for name, count in ((b"int32", 2), (b"float32", 65), (b"float32", 0)):
        refused = kernels.kernels_sum(
            *(None, pointers.ctypes.data_as(ctypes.c_void_p), count, ctypes.c_int64(4), name, None, 1, 1)
        )
        assert refused == -1
        assert b"GPUs sum 1 to 64 arrays of floating dtypes" in kernels.kernels_error()

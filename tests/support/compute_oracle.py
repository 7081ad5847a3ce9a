"""What the tests of tf_ops/compute share: the calls, arrays to call them with, and NumPy's answers."""

import ml_dtypes
import numpy as np
import pytest

from tests import native_module

core = native_module.core()

SUM, MIN, MAX, PRODUCT = 1, 3, 4, 5
OPS = {"Sum": SUM, "Min": MIN, "Max": MAX, "Product": PRODUCT}
LENGTHS = (0, 1, 7, 8, 15, 16, 17, 1000, 4099)
INTEGERS = ("uint8", "int8", "int32", "int64", "int16", "uint16")
FLOATS = ("float16", "bfloat16", "float32", "float64")
REDUCIBLE = (*INTEGERS, *FLOATS, "bool")
MOVED = ("uint32", "uint64", "complex64", "complex128")

every_isa = pytest.mark.parametrize("isa", core.compute_isas())


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def wide_dtype(name):
    """The type in which elements of `name` are added and scaled."""
    return np.dtype(np.float32) if name in ("float16", "bfloat16") else numpy_dtype(name)


def placed(array, offset=0):
    """A copy of `array` that starts `offset` elements behind a 64-byte boundary."""
    size = array.dtype.itemsize
    room = np.zeros(array.nbytes + offset * size + 64, np.uint8)
    start = -room.ctypes.data % 64 + offset * size
    view = room[start : start + array.nbytes].view(array.dtype)
    view[...] = array
    return view


def as_bytes(array):
    return array.view(np.uint8)


def random_values(name, length, seed):
    rng = np.random.default_rng(seed)
    if name == "bool":
        return rng.integers(0, 2, length).astype(bool)
    if name in INTEGERS:
        info = np.iinfo(name)
        return rng.integers(info.min, info.max, length, dtype=name, endpoint=True)
    return (rng.standard_normal(length) * 8).astype(numpy_dtype(name))


def random_bits(name, length, seed):
    """Every kind of value: infinities, NaNs, subnormals, both zeros."""
    size = numpy_dtype(name).itemsize
    raw = np.random.default_rng(seed).integers(0, 256, length * size, dtype=np.uint8)
    if name == "bool":
        raw &= 1
    return raw.view(numpy_dtype(name))


@np.errstate(invalid="ignore")  # ml_dtypes warns of signalling NaNs
def same(actual, expected, nan_bits=False):
    """Equal bits. Which NaN comes out of an operation on NaNs is left open unless `nan_bits`."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if not nan_bits and actual.dtype.kind not in "iub":
        actual_nan, expected_nan = np.isnan(actual), np.isnan(expected)
        np.testing.assert_array_equal(actual_nan, expected_nan)
        actual, expected = actual[~actual_nan], expected[~expected_nan]
    np.testing.assert_array_equal(as_bytes(actual), as_bytes(expected))


@np.errstate(all="ignore")
def expected_reduce(name, op, sources):
    """NumPy's answer: fold from the left, half types in float32 with one rounding at the end."""
    if name == "bool":
        function = {SUM: np.logical_or, MAX: np.logical_or, MIN: np.logical_and, PRODUCT: np.logical_and}[op]
    else:
        function = {SUM: np.add, MIN: np.minimum, MAX: np.maximum, PRODUCT: np.multiply}[op]
    total = sources[0].astype(wide_dtype(name))
    for source in sources[1:]:
        total = function(total, source.astype(wide_dtype(name)))
    return total.astype(numpy_dtype(name))


def reduce(isa, name, op, sources, into=None):
    into = placed(np.zeros_like(sources[0])) if into is None else into
    core.compute_reduce(isa, as_bytes(into), [as_bytes(s) for s in sources], len(into), name, op)
    return into


def cast(isa, to, source, name, factor=1.0, divisor=1, offset=0):
    into = placed(np.zeros(len(source), numpy_dtype(to)), offset)
    core.compute_cast(isa, as_bytes(into), to, as_bytes(source), name, len(source), factor, divisor)
    return into


@np.errstate(all="ignore")
def round_to_bfloat16(values):
    """float64 to bfloat16 in one rounding (ml_dtypes takes two, by way of float32)."""
    _, exponent = np.frexp(values)
    quantum = np.ldexp(1.0, np.maximum(exponent - 8, -133))
    return np.where(np.isfinite(values), np.rint(values / quantum) * quantum, values).astype(ml_dtypes.bfloat16)


@np.errstate(all="ignore")
def expected_cast(to, source, name, factor=1.0, divisor=1):
    values = source.astype(wide_dtype(name))
    if factor != 1.0 or divisor != 1:
        values = values * values.dtype.type(factor / divisor)
    if to == "bfloat16" and values.dtype == np.float64:
        return round_to_bfloat16(values)
    return values.astype(numpy_dtype(to))

"""Casts and scaling on every instruction set this machine has, against NumPy and ml_dtypes."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.compute_oracle import (
    FLOATS,
    INTEGERS,
    LENGTHS,
    MOVED,
    REDUCIBLE,
    SUM,
    as_bytes,
    cast,
    core,
    every_isa,
    expected_cast,
    numpy_dtype,
    placed,
    random_bits,
    random_values,
    reduce,
    same,
    wide_dtype,
)

pytestmark = pytest.mark.native


@every_isa
@pytest.mark.parametrize(("factor", "divisor"), [(1.0, 1), (0.375, 1), (1.0, 49), (3.7, 6), (1e6, 1), (1e-9, 3)])
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_cast(to, name, factor, divisor, isa):
    for length in LENGTHS:
        for offset in (0, 1, 3):
            source = placed(random_bits(name, length, [length, 11]), offset)
            source[::3] = random_values(name, length, length)[::3]
            expected = expected_cast(to, source, name, factor, divisor)
            same(cast(isa, to, source, name, factor, divisor, offset), expected)


@every_isa
@pytest.mark.parametrize("name", REDUCIBLE + MOVED)
def test_identity_copies_every_bit(name, isa):
    for length in LENGTHS:
        source = random_bits(name, length, length)
        same(cast(isa, name, source, name, offset=1), source, nan_bits=True)


@np.errstate(invalid="ignore")
@every_isa
@pytest.mark.parametrize(("name", "mantissa_bits"), [("float16", 10), ("bfloat16", 7)])
def test_every_half_value_there_and_back(name, mantissa_bits, isa):
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    halves = bits.view(numpy_dtype(name))
    for wide in ("float32", "float64"):
        widened = cast(isa, wide, halves, name)
        same(widened, halves.astype(wide))
        quiet = np.where(np.isnan(halves), np.uint16(1 << (mantissa_bits - 1)), np.uint16(0))
        same(cast(isa, name, widened, wide), (bits | quiet).view(numpy_dtype(name)), nan_bits=True)


@every_isa
@pytest.mark.parametrize("wide", ["float32", "float64"])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rounding_at_every_boundary(name, wide, isa):
    """Halfway between every two neighbours, and one step of the wide type to either side."""
    positive = np.arange(0, 0x7C01 if name == "float16" else 0x7F81, dtype=np.uint16)
    values = positive.view(numpy_dtype(name)).astype(np.float64)
    values[-1] = values[-2] + (values[-2] - values[-3])  # where infinity would be if the range went on
    middles = ((values[:-1] + values[1:]) / 2).astype(wide)
    below, above = np.nextafter(middles, wide_dtype(wide).type(0)), np.nextafter(middles, wide_dtype(wide).type(np.inf))
    up = positive[1:]
    even = up - (up & 1)
    for source, expected in ((middles, even), (below, positive[:-1]), (above, up)):
        same(cast(isa, name, source, wide), expected.view(numpy_dtype(name)), nan_bits=True)
        same(cast(isa, name, -source, wide), (expected | 0x8000).view(numpy_dtype(name)), nan_bits=True)


@every_isa
def test_float64_is_rounded_once(isa):
    # By way of float32 these would become ties, and the ties would go the other way.
    tiny = 2.0**-40
    source = np.array([1 + 2.0**-8 + tiny, 1 + 3 * 2.0**-8 - tiny, 2.0**-134 * (1 + tiny), -1 - 2.0**-8 - tiny] * 9)
    expected = np.array([1 + 2.0**-7, 1 + 2.0**-7, 2.0**-133, -1 - 2.0**-7] * 9)
    same(cast(isa, "bfloat16", source, "float64"), expected.astype(ml_dtypes.bfloat16))
    source = np.array([1 + 2.0**-11 + tiny, 1 + 3 * 2.0**-11 - tiny, 65520 - tiny * 2**8] * 9)
    same(cast(isa, "float16", source, "float64"), np.array([1 + 2.0**-10, 1 + 2.0**-10, 65504] * 9).astype(np.float16))


@every_isa
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_cast_writes_nothing_outside(to, name, isa):
    for length in (*range(35), 1023, 1025):
        room = np.full(length * 8 + 128, 0xA5, np.uint8)
        end = 64 + length * numpy_dtype(to).itemsize
        core.compute_cast(isa, room[64:end], to, as_bytes(random_values(name, length, 1)), name, length, 0.5)
        assert (room[:64] == 0xA5).all()
        assert (room[end:] == 0xA5).all()


@every_isa
@pytest.mark.parametrize(
    ("to", "name"), [("float32", "float32"), ("float16", "float64"), ("int64", "int64"), ("bool", "bool")]
)
def test_stores_past_the_caches_write_the_same_bytes_and_no_others(to, name, isa):
    size = numpy_dtype(to).itemsize
    for length, start in itertools.product((0, 1, 7, 33, 511, 512, 1025, 5000), (64, 64 + size, 64 + 5 * size)):
        source = random_bits(name, length, [length, start])
        room = np.full(length * size + 256, 0xA5, np.uint8)
        end = start + length * size
        core.compute_cast(isa, room[start:end], to, as_bytes(source), name, length, 0.5, uncached=True)
        expected = np.full_like(room, 0xA5)
        core.compute_cast(isa, expected[start:end], to, as_bytes(source), name, length, 0.5)
        np.testing.assert_array_equal(room, expected)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_cast_gives_the_same_bits_on_every_isa(to, name):
    source = random_bits(name, 1 << 16, 5)
    for factor in (1.0, 0.3):
        first, *others = [cast(isa, to, source, name, factor) for isa in core.compute_isas()]
        for other in others:
            same(other, first, nan_bits=True)


@every_isa
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("to", FLOATS)
def test_cast_in_place(to, name, isa):
    for length in (0, 1, 15, 1024, 1025, 4099):
        source = random_values(name, length, length)
        room = np.zeros(length * 8, np.uint8)
        room[: source.nbytes] = as_bytes(source)
        core.compute_cast(isa, room, to, room, name, length, 0.5)
        actual = room[: length * numpy_dtype(to).itemsize].view(numpy_dtype(to))
        same(actual, expected_cast(to, source, name, 0.5))


@every_isa
@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.floats(), min_size=19, max_size=19), to=st.sampled_from(FLOATS))
def test_any_float64_to_every_type(isa, values, to):
    source = np.array(values, np.float64)
    same(cast(isa, to, source, "float64"), expected_cast(to, source, "float64"))


# Scaling of integers


def expected_scale(name, value, factor, divisor):
    """Python's integers: truncate value * factor, then divide toward zero."""
    if factor != 1.0:
        info, product = np.iinfo(name), float(value) * factor
        if math.isnan(product):
            value = 0
        else:
            value = info.max if product >= info.max else info.min if product <= info.min else int(product)
    return abs(value) // divisor * (1 if value >= 0 else -1)


@every_isa
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    ("factor", "divisor"),
    [
        (1.0, 3),
        (1.0, 49),
        (1.0, 2**40),
        (0.5, 1),
        (2.0, 1),
        (-2.5, 1),
        (0.3, 7),
        (1e30, 1),
        (math.inf, 2),
        (math.nan, 1),
    ],
)
def test_scaling_of_integers(name, factor, divisor, isa):
    info = np.iinfo(name)
    edges = np.array([info.min, info.min + 1, info.max // 2 + 1, info.max - 1, info.max, 0, 1, 2, 3, 49, 98], name)
    source = np.concatenate([edges, random_values(name, 1000, 3)])
    expected = [expected_scale(name, int(value), factor, divisor) for value in source]
    same(cast(isa, name, source, name, factor, divisor), np.array(expected, name))


@every_isa
@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40),
    divisor=st.integers(1, 2**31),
)
@example(values=[2**31 - 1, -(2**31)], divisor=2**31)
def test_division_of_any_integer(isa, values, divisor):
    expected = [expected_scale("int32", v, 1.0, divisor) for v in values]
    same(cast(isa, "int32", np.array(values, np.int32), "int32", 1.0, divisor), np.array(expected, np.int32))


@every_isa
@pytest.mark.parametrize("name", INTEGERS)
def test_average_of_equal_integers_is_exact(name, isa):
    for ranks in (3, 7, 49):  # n * (1/n) is less than 1 in floating point for n = 49
        equal = np.arange(0 if name.startswith("u") else -2, 3).astype(name)
        total = reduce(isa, name, SUM, [equal] * ranks)
        same(cast(isa, name, total, name, 1.0, ranks), equal)


@every_isa
def test_integers_are_truncated_toward_zero(isa):
    source = np.array([-7, -1, 0, 1, 7], np.int32)
    assert cast(isa, "int32", source, "int32", 1.0, 2).tolist() == [-3, 0, 0, 0, 3]
    assert cast(isa, "int32", source, "int32", 0.5).tolist() == [-3, 0, 0, 0, 3]
    assert cast(isa, "int32", source, "int32", 1.5, 2).tolist() == [-5, 0, 0, 0, 5]


@every_isa
def test_bool_ignores_scaling(isa):
    source = random_values("bool", 100, 1)
    same(cast(isa, "bool", source, "bool", 0.5, 3), source)

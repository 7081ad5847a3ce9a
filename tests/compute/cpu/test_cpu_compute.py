"""Reductions on every instruction set this machine has, against NumPy; and what the test binding refuses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.compute_oracle import (
    FLOATS,
    INTEGERS,
    LENGTHS,
    MAX,
    MIN,
    OPS,
    REDUCIBLE,
    SUM,
    as_bytes,
    core,
    every_isa,
    expected_reduce,
    numpy_dtype,
    placed,
    random_bits,
    random_values,
    reduce,
    same,
)

pytestmark = pytest.mark.native


@every_isa
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", REDUCIBLE)
def test_reduce(name, op, count, isa):
    for length in LENGTHS:
        values = [random_values(name, length, [length, k]) for k in range(count)]
        expected = expected_reduce(name, OPS[op], values)
        for offset in (0, 1, 3):
            sources = [placed(v, offset + k) for k, v in enumerate(values)]
            same(reduce(isa, name, OPS[op], sources, placed(np.zeros_like(expected), offset)), expected)
            for source, value in zip(sources, values):
                same(source, value)


@every_isa
@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("op", ["Sum", "Product"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_around(name, op, count, isa):
    info = np.iinfo(name)
    ends = np.array([info.min, info.min + 1, info.max // 2, info.max - 1, info.max], name)
    sources = [placed(np.roll(np.tile(ends, 21), k * (k + 1) // 2)) for k in range(count)]
    same(reduce(isa, name, OPS[op], sources), expected_reduce(name, OPS[op], sources))


@every_isa
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("name", REDUCIBLE)
def test_reduce_in_place_at_every_position(name, count, isa):
    for length in (1, 17, 4099):
        values = [random_values(name, length, [length, k]) for k in range(count)]
        expected = expected_reduce(name, SUM, values)
        for position in range(count):
            sources = [placed(v, k % 4) for k, v in enumerate(values)]
            same(reduce(isa, name, SUM, sources, sources[position]), expected)


@every_isa
@pytest.mark.parametrize("count", [2, 7])
@pytest.mark.parametrize("name", REDUCIBLE)
def test_reduce_writes_nothing_outside(name, count, isa):
    for length in (*range(35), 1023, 1025):
        room = np.full(length * 8 + 128, 0xA5, np.uint8)
        end = 64 + length * numpy_dtype(name).itemsize
        sources = [as_bytes(random_values(name, length, k)) for k in range(count)]
        core.compute_reduce(isa, room[64:end], sources, length, name, SUM)
        assert (room[:64] == 0xA5).all()
        assert (room[end:] == 0xA5).all()


@every_isa
@pytest.mark.parametrize("op", [MIN, MAX])
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("count", [2, 3, 6])
def test_min_and_max_propagate_nan(name, op, count, isa):
    length = count * 20
    values = [random_values(name, length, [7, k]) for k in range(count)]
    for k in range(count):
        values[k][k::count] = math.nan
    values[0][: length // 2] = math.inf
    actual = reduce(isa, name, op, values)
    same(actual, expected_reduce(name, op, values))
    assert np.isnan(actual[length // 2 :].astype(np.float32)).all()


@every_isa
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_types_accumulate_in_float32(name, isa):
    # In the half type itself 2048 + 1 is 2048, however often it is added.
    sources = [np.full(40, 2048 if k == 0 else 1, numpy_dtype(name)) for k in range(1024)]
    same(reduce(isa, name, SUM, sources), np.full(40, 3072, numpy_dtype(name)))


@every_isa
def test_sources_are_added_from_the_first_on(isa):
    # float32 keeps multiples of 8 near 1e8, so each order of the same numbers has its own sum.
    for order, expected in (((1e8, 3, 3, 3, -1e8, 1), 1), ((3, 3, 3, 1e8, -1e8, 1), 9), ((1, 3, 1e8, 3, 3, -1e8), 0)):
        sources = [np.full(33, value, np.float32) for value in order]
        same(reduce(isa, "float32", SUM, sources), np.full(33, expected, np.float32))


@every_isa
def test_bool_takes_any_nonzero_byte_as_true(isa):
    one, two = np.full(50, 1, np.uint8).view(bool), np.full(50, 2, np.uint8).view(bool)
    for op in OPS.values():
        assert as_bytes(reduce(isa, "bool", op, [one, two])).tolist() == [1] * 50


@pytest.mark.parametrize("count", [2, 3, 4, 7])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", REDUCIBLE)
def test_reduce_gives_the_same_bits_on_every_isa(name, op, count):
    sources = [random_bits(name, 5003, k) for k in range(count)]
    first, *others = [reduce(isa, name, OPS[op], sources) for isa in core.compute_isas()]
    for other in others:
        same(other, first)


@every_isa
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(st.floats(width=32), min_size=21, max_size=21), min_size=2, max_size=6))
def test_sum_of_any_floats(isa, rows):
    sources = [np.array(row, np.float32) for row in rows]
    same(reduce(isa, "float32", SUM, sources), expected_reduce("float32", SUM, sources))


# What the binding refuses

FOUR = np.zeros(4, np.float32).view(np.uint8)


def test_isas_start_with_generic():
    assert core.compute_isas()[0] == "generic"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"isa": "mmx"}, "isa"),
        ({"dtype": "float8"}, "dtype"),
        ({"dtype": "complex64"}, "reduce"),
        ({"op": 0}, "op"),
        ({"op": 2}, "op"),
        ({"elements": 5}, "into"),
        ({"elements": -1}, "elements"),
        ({"sources": []}, "sources"),
        ({"sources": [FOUR, FOUR[:8]]}, "sources"),
        ({"into": np.zeros(32, np.uint8)[1:]}, "aligned"),
    ],
)
def test_reduce_refuses(change, message):
    good = {"isa": "generic", "into": FOUR.copy(), "sources": [FOUR], "elements": 4, "dtype": "float32", "op": SUM}
    with pytest.raises(ValueError, match=message):
        core.compute_reduce(**good | change)


@pytest.mark.parametrize(
    ("to", "name", "factor", "divisor", "message"),
    [
        ("float32", "float32", 1.0, 0, "divisor"),
        ("float32", "int32", 1.0, 1, "Cannot cast"),
        ("uint32", "uint32", 2.0, 1, "Cannot cast"),
        ("float64", "float32", 1.0, 1, "into"),
    ],
)
def test_cast_refuses(to, name, factor, divisor, message):
    with pytest.raises(ValueError, match=message):
        core.compute_cast("generic", FOUR.copy(), to, FOUR, name, 4, factor, divisor)

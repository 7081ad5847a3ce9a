"""float32 in 8-bit blocks, on every instruction set this machine has, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.compute_oracle import core, every_isa, placed, random_bits

pytestmark = pytest.mark.native

BLOCK, LARGEST = 256, 126
LENGTHS = (0, 1, 15, 255, 256, 257, 1000, 4099)
NONE = np.zeros(0, np.float32)


def quantise(isa: str, values: np.ndarray, errors: np.ndarray = NONE) -> bytes:
    return bytes(core.compute_quantise(isa, values, errors))


def dequantise(isa: str, sent: bytes, length: int) -> np.ndarray:
    into = placed(np.full(length, 7, np.float32))
    core.compute_dequantise(isa, into, sent, False)
    return into


@np.errstate(all="ignore")
def scale_of(block: np.ndarray) -> np.float32:
    """The largest finite magnitude / 126 in float32, rounded up to bfloat16; 0 below 2^-125."""
    finite = np.abs(block[np.isfinite(block)])
    quotient = np.float32(finite.max(initial=np.float32(0))) / np.float32(LARGEST)
    bits = (int(np.float32(quotient).view(np.uint32)) + 0xFFFF) >> 16
    return np.array([0 if bits < 0x100 else bits << 16], np.uint32).view(np.float32)[0]


@np.errstate(all="ignore")
def expected(values: np.ndarray) -> np.ndarray:
    result = values.copy()
    for begin in range(0, len(values), BLOCK):
        block = values[begin : begin + BLOCK]
        scale = scale_of(block)
        inverse = np.float32(0) if scale == 0 else np.float32(1) / scale
        codes = np.rint(block * inverse)
        result[begin : begin + BLOCK] = np.where(np.isfinite(block), codes * scale, block)
    return result


@every_isa
@pytest.mark.parametrize("length", LENGTHS)
def test_values(isa, length):
    for seed, magnitude in enumerate((1.0, 1e-30, 1e30, 1e-37, 0.0)):
        source = np.random.default_rng([seed, length]).standard_normal(length).astype(np.float32) * np.float32(
            magnitude
        )
        values = placed(source, offset=seed % 4)
        sent = quantise(isa, values)
        assert len(sent) == length + 2 * -(-length // BLOCK)
        np.testing.assert_array_equal(values, expected(source))
        np.testing.assert_array_equal(dequantise(isa, sent, length), values)


@every_isa
def test_all_kinds_of_numbers(isa):
    """Infinities and NaN stay what they are, and do not disturb the others of their block."""
    source = random_bits("float32", 8192, 5)
    source[7], source[300], source[301] = np.inf, -np.inf, np.nan
    values = placed(source)
    errors = placed(np.zeros(len(source), np.float32))
    result = dequantise(isa, quantise(isa, values, errors), len(source))
    wanted = expected(source)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(source))
    finite = ~np.isnan(source)
    np.testing.assert_array_equal(result[finite], wanted[finite])
    np.testing.assert_array_equal(values[finite], wanted[finite])
    assert np.isfinite(errors).all()
    assert (errors[~np.isfinite(source)] == 0).all()


@every_isa
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 30), length=st.integers(1, 1500))
def test_what_is_rounded_away_is_kept(isa, seed, length):
    random = np.random.default_rng(seed)
    source = random.standard_normal(length).astype(np.float32)
    before = (random.standard_normal(length) * 0.01).astype(np.float32)
    values, errors = placed(source), placed(before)
    quantise(isa, values, errors)
    wanted = source + before
    np.testing.assert_array_equal(values, expected(wanted))
    np.testing.assert_array_equal(errors, wanted - values)
    for begin in range(0, length, BLOCK):
        part = slice(begin, begin + BLOCK)
        assert np.abs(errors[part]).max() <= 0.5001 * scale_of(wanted[part])


@every_isa
def test_a_scale_is_a_bfloat16_that_is_large_enough(isa):
    source = np.random.default_rng(1).standard_normal(5 * BLOCK).astype(np.float32)
    sent = quantise(isa, placed(source))
    scales = np.frombuffer(sent[:10], ml_dtypes.bfloat16).astype(np.float64)
    largest = np.abs(source).reshape(5, BLOCK).max(axis=1)
    assert (scales * LARGEST >= largest * (1 - 1e-6)).all()
    assert (scales * LARGEST <= largest * 1.01).all()


@every_isa
def test_adding(isa):
    source = np.random.default_rng(2).standard_normal(700).astype(np.float32)
    values, into = placed(source), placed(np.arange(700, dtype=np.float32))
    core.compute_dequantise(isa, into, quantise(isa, values), True)
    np.testing.assert_array_equal(into, np.arange(700, dtype=np.float32) + values)

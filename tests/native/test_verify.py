"""SMDDP_VERIFY: a bit that was changed is found and named, and what is right passes. Ranks are threads of this process.

The rest of this folder passes with SMDDP_VERIFY=1 in the environment too; here are the cases that are made for it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from smddp_tf import _loader
from tests.native.layouts import LAYOUTS
from tests.native.test_cluster import AVERAGE, DTYPES, MAX, MIN, PRODUCT, SUM, allreduce

_core = _loader.core()
HOSTS = LAYOUTS["2+1"]
RANKS = len(HOSTS)
ADASUM = 2
SIGN, EXPONENT = 31, 30  # bits of a float32


@pytest.fixture(autouse=True)
def verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDDP_VERIFY", "1")


def noise(dtype: str = "float32", length: int = 3000) -> list[np.ndarray]:
    return [(np.random.default_rng(rank).normal(size=length) * 50).astype(DTYPES[dtype]) for rank in range(RANKS)]


def reduced(op: int = SUM, planned: bool = False, dtype: str = "float32") -> Callable[[], object]:
    """Three tensors of 600, 900 and 1500 elements."""
    return lambda: allreduce(HOSTS, noise(dtype), dtype, op, planned)


def rows(rank: int) -> np.ndarray:
    return np.arange(12 * (rank + 1), dtype=np.uint8)


def broadcasted() -> None:
    _core.cluster_broadcast(HOSTS, [np.arange(1000).astype(np.uint8) for _ in HOSTS], 1)


def gathered() -> None:
    _core.cluster_allgather(HOSTS, [rows(rank) for rank in range(RANKS)], 3)


def exchanged() -> None:
    _core.cluster_alltoall(HOSTS, [rows(2) for _ in HOSTS], 3, [[]] * RANKS)


def scattered() -> None:
    inputs = [np.random.default_rng(rank).normal(size=900 * 7).astype(np.float32).view(np.uint8) for rank in range(3)]
    outputs = [np.zeros(300 * 7 * 4, np.uint8) for _ in range(3)]
    _core.cluster_reducescatter(HOSTS, inputs, outputs, "float32", [900], 7, SUM, 1.0, 1.0, 4096)


@pytest.mark.parametrize(
    ("flip", "call", "words"),
    [
        # The result of one rank: the element, what it is, and who is alone.
        (f"2:output:{32 * 700 + SIGN}:", reduced(), "element 100 of tensor 1 .* Unlike the result of rank 0: rank 2 "),
        (f"0:output:{32 * 700 + 3}:", reduced(PRODUCT), "element 100 of tensor 1 .* of rank 1: rank 0 "),
        (f"1:output:{32 * 2999}:", reduced(ADASUM), "element 1499 of tensor 2 .* of rank 0: rank 1 "),
        (f"1:output:{32 * 2999}:bucket 0", reduced(AVERAGE, planned=True), "element 1499 of tensor 2"),
        (f"1:output:{16 * 5}:", reduced(AVERAGE, dtype="bfloat16"), "element 5 of tensor 0 .bfloat16 .600"),
        # What is reduced is not what was brought, so that all ranks have the same wrong result.
        (f"1:input:{32 * 700 + EXPONENT}:", reduced(), "elements 0 to 899 of tensor 1 .* on every rank, but what"),
        (f"1:input:{32 * 700 + EXPONENT}:", reduced(planned=True), "elements 0 to 899 of tensor 1 "),
        (f"2:input:{32 * 700 + 1}:", reduced(dtype="int32"), "the sum of elements 0 to 899 of tensor 1 .int32 "),
        (
            f"2:input:{32 * 0 + 30}:",
            reduced(MAX, dtype="int32"),
            "the largest of elements 0 to 599 of tensor 0 .int32 ",
        ),
        (f"0:input:{32 * 5 + EXPONENT}:", scattered, "elements 0 to 2099 .* in the result of rank 0, but"),
        (f"2:output:{32 * 5 + EXPONENT}:", scattered, "elements 4200 to 6299 .* in the result of rank 2, but"),
        (
            "2:output:100:",
            broadcasted,
            r"element 12 .* is 12 \(bits 0c\) in what rank 1 brought and 28 \(bits 1c\) in ",
        ),
        ("1:input:100:", broadcasted, "was not the same in what rank 1 brought and in the result of rank 0"),
        ("0:output:293:", gathered, "element 0 of the block of rank 2 in tensor 0 .* in the result of rank 0"),
        ("2:input:100:", gathered, "the block of rank 2 in tensor 0 .* was not the same in what rank 2 brought"),
        ("2:record:3:", reduced(), "the checksums of rank 2 did not come as they were sent"),
        ("1:output:101:", exchanged, "element 0 of the block of rank 1 in tensor 0 .* in the result of rank 1"),
    ],
)
def test_a_flipped_bit_is_found(monkeypatch: pytest.MonkeyPatch, flip: str, call: Callable, words: str) -> None:
    call()
    monkeypatch.setenv("SMDDP_TEST_FLIP_BIT", flip)
    with pytest.raises(_core.EngineError, match=f"(?s)^SMDDP_VERIFY: .* gave a wrong result: .*{words}"):
        call()
    monkeypatch.setenv("SMDDP_VERIFY", "0")
    call()


@pytest.mark.parametrize("wire", ["", "float16", "bfloat16"])
def test_rounding_is_no_finding(wire: str) -> None:
    """Sums that cancel, what the dtype cannot hold, what is next to nothing, and NaNs."""
    spread = np.exp(np.random.default_rng(5).normal(size=30000) * 8).astype(np.float32)
    for inputs in (
        [spread, -spread, spread[::-1].copy()],
        [spread * np.float32(1e-40), spread * np.float32(1e-38), -spread * np.float32(1e-44)],
        [np.full(9000, 6e4, np.float32)] * 3,
        [
            np.where(np.arange(9000) % (rank + 700) == 0, value, 1).astype(np.float32)
            for rank, value in enumerate((np.nan, np.inf, -np.inf))
        ],
    ):
        for op in (SUM, AVERAGE, MIN, MAX, PRODUCT):
            for prescale, postscale in ((1.0, 1.0), (1e-3, 700.0), (-3.0, 1e-12)):
                allreduce(HOSTS, inputs, "float32", op, True, prescale, postscale, wire=wire)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_that_wrap_are_no_finding(dtype: str) -> None:
    random = np.random.default_rng(5)
    info = np.iinfo(dtype)
    inputs = [random.integers(info.min, info.max, 9000, dtype=dtype, endpoint=True) for _ in HOSTS]
    for op in (SUM, AVERAGE, MIN, MAX, PRODUCT):
        allreduce(HOSTS, inputs, dtype, op, False)
        allreduce(HOSTS, inputs, dtype, op, True, prescale=0.5, postscale=3.0)


@pytest.mark.parametrize("text", ["1", "x:output:3:", "1:both:3:", "-1:input:3:", "1:output:-3:"])
def test_a_flip_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SMDDP_TEST_FLIP_BIT", text)
    with pytest.raises(ValueError, match="SMDDP_TEST_FLIP_BIT must be RANK:WHAT:BIT:NAME, where WHAT is"):
        gathered()

"""SMDDP_VERIFY: damage to memory is found and named, and what is right passes. Ranks are threads of this process.

The rest of this folder passes with SMDDP_VERIFY=1 in the environment too; here are the cases that are made for it. The
damage is real: a thread of the test changes memory of one rank while the collective is under way.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from tests import native_module
from tests.damage import bytes_of, first_error, flickering
from tests.support.cluster_jobs import AVERAGE, CHUNK_BYTES, DTYPES, MAX, MIN, PRODUCT, SUM, allreduce
from tests.support.layouts import LAYOUTS

pytestmark = pytest.mark.native

_core = native_module.core()
HOSTS = LAYOUTS["2+1"]
RANKS = len(HOSTS)
ADASUM = 2
ELEMENTS = 1 << 18
AT = 100_000  # the element that is damaged; it is in tensor 1 of cluster_allreduce's three
LAST = 4 * AT + 3  # the byte of it that has the sign


@pytest.fixture(autouse=True)
def verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDDP_VERIFY", "1")


@dataclass(frozen=True)
class Job:
    """A collective, and the memory that each rank brings to it and gets from it."""

    inputs: list[np.ndarray]
    outputs: list[np.ndarray]
    run: Callable[[], object]


def noise(dtype: str, ranks: int = RANKS) -> list[np.ndarray]:
    """With an element that is large beside the others."""
    arrays = [np.random.default_rng(rank).normal(size=ELEMENTS) * 50 for rank in range(ranks)]
    for array in arrays:
        array[AT] = 1000
    return [array.astype(np.int64 if "int" in dtype else np.float32).astype(DTYPES[dtype]) for array in arrays]


def reduced(op: int = SUM, planned: bool = False, dtype: str = "float32", hosts: list[str] = HOSTS) -> Job:
    inputs = [array.view(np.uint8) for array in noise(dtype, len(hosts))]
    outputs = [np.zeros_like(array) for array in inputs]
    arguments = (dtype, op, 1.0, 1.0, CHUNK_BYTES, planned)
    return Job(inputs, outputs, lambda: _core.cluster_allreduce(hosts, inputs, outputs, *arguments))


def scattered() -> Job:
    """Element AT is rank 1's."""
    inputs = [array.view(np.uint8) for array in noise("float32")]
    outputs = [np.zeros(4 * len(part), np.uint8) for part in np.array_split(np.empty(ELEMENTS), RANKS)]
    arguments = ("float32", [ELEMENTS], 1, SUM, 1.0, 1.0, CHUNK_BYTES)
    return Job(inputs, outputs, lambda: _core.cluster_reducescatter(HOSTS, inputs, outputs, *arguments))


def broadcasted() -> Job:
    """From rank 1, in place."""
    arrays = [array.view(np.uint8) for array in noise("float32")]
    return Job(arrays, arrays, lambda: _core.cluster_broadcast(HOSTS, arrays, 1))


def gathered() -> Job:
    inputs = [array.view(np.uint8) for array in noise("float32")]
    return Job(inputs, [], lambda: _core.cluster_allgather(HOSTS, inputs, 4))


def exchanged() -> Job:
    """Element AT goes to rank 1."""
    inputs = [array[: 3 * (ELEMENTS // 3)].view(np.uint8) for array in noise("float32")]
    return Job(inputs, [], lambda: _core.cluster_alltoall(HOSTS, inputs, 4, [[]] * RANKS))


def found_in(memory: np.ndarray, byte: int, job: Job, pause: float = 0) -> str:
    with flickering([bytes_of(memory)], byte, pause):
        return first_error(job.run, _core.EngineError)


def is_named(words: str, memory: np.ndarray, byte: int, job: Job, pause: float = 0) -> bool:
    """Not always at the first try: the byte may change between two readings of one check, which then says so in other
    words."""
    return any(words in found_in(memory, byte, job, pause) for _ in range(10))


def test_damage_that_meets_few_calls_is_waited_for() -> None:
    calls, begin = itertools.count(), time.monotonic()

    def found_late() -> None:
        if next(calls) > 500 and time.monotonic() > begin + 0.2:
            raise _core.EngineError("found")

    assert first_error(found_late, _core.EngineError) == "found"
    assert first_error(lambda: None, _core.EngineError, tries=3, seconds=0) == ""


@pytest.mark.parametrize(
    ("job", "rank", "words"),
    [
        (reduced(), 2, "tensor 1 (float32 [78644]) on rank 2 is not the result of rank 0 (of 3 ranks)"),
        (reduced(PRODUCT), 0, "tensor 1 (float32 [78644]) on rank 0 is not the result of rank 1 (of 3 ranks)"),
        (reduced(ADASUM), 1, "on rank 1 is not the result of rank 0"),
        (reduced(AVERAGE, planned=True), 1, "on rank 1 is not the result of rank 0"),
        (reduced(AVERAGE, dtype="int32"), 1, "tensor 1 (int32 [78644]) on rank 1 is not the result of rank 0"),
    ],
)
def test_a_result_that_differs_is_named(job: Job, rank: int, words: str) -> None:
    error = found_in(job.outputs[rank], LAST, job)
    assert re.search(r"SMDDP_VERIFY: .*'cluster' gave a wrong result: ", error), error
    assert words in error or is_named(words, job.outputs[rank], LAST, job)


@pytest.mark.parametrize("layout", ["2", "1+1"])
@pytest.mark.parametrize("rank", [0, 1])
def test_where_as_many_have_the_one_as_the_other_the_sums_tell(layout: str, rank: int) -> None:
    job = reduced(hosts=LAYOUTS[layout])
    words = f"on rank {rank} is not the result of rank {1 - rank} (of 2 ranks)"
    assert is_named(words, job.outputs[rank], LAST, job, pause=5e-4)  # with a pause a byte changes less often


@pytest.mark.parametrize(
    ("job", "byte", "words"),
    [
        (reduced(), LAST, "tensor 1 (float32 [78644]) on every rank is not the sum of the inputs (of 3 ranks)"),
        (reduced(AVERAGE, planned=True), LAST, "tensor 0 (float32 [78644]) on every rank is not the sum of the inputs"),
        (reduced(dtype="int32"), LAST, "tensor 1 (int32 [78644]) on every rank is not the sum of the inputs"),
        (reduced(dtype="int8"), 200_000, "tensor 2 (int8 [131072]) on every rank is not the sum of the inputs"),
        (scattered(), LAST, "tensor 0 (float32 [262144, 1]) on rank 1 is not the sum of the inputs"),
        (
            gathered(),
            LAST,
            "the block of rank 1 in tensor 0 (uint8 [262144, 4]) on ranks 0, 1, 2 differs from the input of rank 1",
        ),
        (
            exchanged(),
            LAST,
            "the block of rank 1 in tensor 0 (uint8 [262143, 4]) on rank 1 differs from the input of rank 1",
        ),
    ],
)
def test_what_is_not_made_of_the_inputs_is_named(job: Job, byte: int, words: str) -> None:
    assert is_named(words, job.inputs[1], byte, job)


@pytest.mark.parametrize(
    ("job", "rank", "byte", "words"),
    [
        (scattered(), 1, 50_003, "tensor 0 (float32 [262144, 1]) on rank 1 is not the sum of the inputs"),
        (broadcasted(), 2, LAST, "tensor 0 (uint8 [1048576]) on rank 2 differs from the input of rank 1"),
    ],
)
def test_a_result_that_is_not_what_was_brought_is_named(job: Job, rank: int, byte: int, words: str) -> None:
    assert is_named(words, job.outputs[rank], byte, job)


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

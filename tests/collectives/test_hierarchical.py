"""The engine's collectives over ranks that are threads of this process, against NumPy.

Real engine, plans, buckets and algorithms; only the transport is made of queues. So eight ranks on four hosts are a
unit test.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from tests import native_module
from tests.support.cluster_jobs import (
    AVERAGE,
    CHUNK_BYTES,
    DTYPES,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    allreduce,
    brought,
    check,
    reduced,
)
from tests.support.layouts import LAYOUTS
from tests.variants import FULL

pytestmark = pytest.mark.native

_core = native_module.core()


over_layouts = pytest.mark.parametrize("hosts", LAYOUTS.values(), ids=LAYOUTS.keys())
over_dtypes = pytest.mark.parametrize("dtype", DTYPES)
over_matching = pytest.mark.parametrize("planned", [True, False], ids=["planned", "named"])


def lengths(ranks: int, dtype: str) -> Iterator[int]:
    per_chunk = CHUNK_BYTES // DTYPES[dtype].itemsize
    long = {17 * per_chunk, 64 * per_chunk + 5} if FULL else set()
    yield from sorted({0, 1, ranks - 1, ranks, ranks + 1, 1000, per_chunk + 1, 5 * per_chunk + 3} | long)


@over_matching
@over_dtypes
@over_layouts
def test_allreduce(hosts: list[str], dtype: str, planned: bool) -> None:
    ops = (SUM, MIN, MAX, PRODUCT) if dtype == "bool" else (AVERAGE, SUM, MIN, MAX, PRODUCT)
    for length in lengths(len(hosts), dtype):
        for op in ops:
            inputs = [brought(rank, length, dtype, op) for rank in range(len(hosts))]
            outputs = allreduce(hosts, inputs, dtype, op, planned)
            exact = op != AVERAGE or "float" not in dtype
            check(outputs, reduced(inputs, op), exact, f"{dtype}, op {op}, {length} elements")


@pytest.mark.parametrize("length", [255, 256, 257])
@pytest.mark.parametrize("layout", ["1", "3", "2+1", "2+2+2+2"])
def test_small_ones_are_carried_by_the_announcements(layout: str, length: int) -> None:
    """1,024 bytes are the most that an announcement carries; the element beyond takes the way of all large ones."""
    hosts = LAYOUTS[layout]
    inputs = [brought(rank, length, "float32", SUM) for rank in range(len(hosts))]
    outputs = allreduce(hosts, inputs, "float32", AVERAGE, False, prescale=0.5, postscale=4.0)
    check(outputs, reduced(inputs, SUM) * 2 / len(hosts), False, f"{length} elements")


@over_matching
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64"])
@over_layouts
def test_scaling(hosts: list[str], dtype: str, planned: bool) -> None:
    """Inputs are multiplied by the prescale factor, the result by the postscale factor; integers are cut toward 0."""
    cut = np.trunc if DTYPES[dtype].kind == "i" else np.asarray
    for length in (1, 1000):
        inputs = [brought(rank, length, dtype, SUM) - 6 for rank in range(len(hosts))]
        outputs = allreduce(hosts, inputs, dtype, SUM, planned, prescale=0.5, postscale=4.0)
        scaled = [cut(0.5 * array.astype(np.float64)) for array in inputs]
        check(outputs, 4.0 * np.sum(scaled, axis=0), True, f"{dtype}, {length} elements")


@over_matching
@over_layouts
def test_in_place(hosts: list[str], planned: bool) -> None:
    for length in lengths(len(hosts), "float32"):
        inputs = [brought(rank, length, "float32", SUM) for rank in range(len(hosts))]
        outputs = allreduce(hosts, inputs, "float32", SUM, planned, in_place=True)
        check(outputs, reduced(inputs, SUM), True, f"{length} elements in place")


@over_matching
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@over_layouts
def test_repeats_bit_for_bit(hosts: list[str], dtype: str, planned: bool) -> None:
    random = np.random.default_rng(7)
    inputs = [random.standard_normal(3000).astype(DTYPES[dtype]) for _ in hosts]
    first, again = (allreduce(hosts, inputs, dtype, SUM, planned)[0] for _ in range(2))
    assert first.tobytes() == again.tobytes()
    expected = np.sum([array.astype(np.float64) for array in inputs], axis=0)
    magnitude = np.sum([np.abs(array.astype(np.float64)) for array in inputs], axis=0)
    error = np.abs(first.astype(np.float64) - expected)
    # Halves accumulate in float32 and each level of the hierarchy rounds once; float32 rounds at every addition.
    roundings = len(hosts) if dtype == "float32" else 2
    assert np.all(error <= roundings * float(ml_dtypes.finfo(DTYPES[dtype]).eps) * magnitude)


@over_layouts
def test_not_a_number_and_infinity_reach_every_rank(hosts: list[str]) -> None:
    inputs = [np.ones(9, np.float32) for _ in hosts]
    inputs[-1][2], inputs[0][5] = np.nan, np.inf
    for output in allreduce(hosts, inputs, "float32", SUM, planned=True):
        assert np.isnan(output[2])
        assert np.isinf(output[5])
        np.testing.assert_array_equal(np.delete(output, [2, 5]), len(hosts))


def some_bytes(rank: int, length: int) -> np.ndarray:
    return ((np.arange(length) + 31 * rank) % 251).astype(np.uint8)


@over_layouts
def test_broadcast(hosts: list[str]) -> None:
    for root in sorted({0, len(hosts) // 2, len(hosts) - 1}):
        for length in (0, 1, len(hosts) + 1, 1000, CHUNK_BYTES + 1, 700_001):
            arrays = [some_bytes(rank, length) for rank in range(len(hosts))]
            expected = arrays[root].copy()
            _core.cluster_broadcast(hosts, arrays, root)
            for rank, array in enumerate(arrays):
                np.testing.assert_array_equal(array, expected, err_msg=f"root {root}, {length} bytes, rank {rank}")


@over_layouts
@pytest.mark.parametrize("row_bytes", [1, 12])
def test_allgather_of_unequal_parts(hosts: list[str], row_bytes: int) -> None:
    ranks = len(hosts)
    falling = [3 * (ranks - rank) for rank in range(ranks)]
    for rows in ([0] * ranks, [1] * ranks, list(range(ranks)), falling, [2000] * ranks):
        inputs = [some_bytes(rank, count * row_bytes) for rank, count in enumerate(rows)]
        gathered = _core.cluster_allgather(hosts, inputs, row_bytes)
        expected = np.concatenate(inputs)
        for rank, result in enumerate(gathered):
            got = np.frombuffer(bytes(result), np.uint8)
            np.testing.assert_array_equal(got, expected, err_msg=f"{rows} rows, rank {rank}")


@pytest.mark.parametrize("layout", ["2", "1+1", "4", "2+2"])
def test_same_name_twice_in_flight_is_an_error_on_every_rank(layout: str) -> None:
    """Only rank 0 had two requests of one name waiting; the others must not wait for its second for ever."""
    for message in _core.cluster_same_name_twice(LAYOUTS[layout]):
        assert "Requested to barrier a tensor with the same name" in message
        assert "on rank 0" in message


def many_arrays(ranks: int, operations: int, elements: int) -> list[list[np.ndarray]]:
    """By rank and operation; different everywhere, small whole numbers, so that sums are exact."""
    place = np.arange(elements) % 1009
    return [[(place + 13 * rank + 7 * i).astype(np.float32) for i in range(operations)] for rank in range(ranks)]


# More operations at once than shared memory has slots for, in opposite orders: each rank's slots fill with what the
# others do not want yet. Without evacuation this stands still; with a window that is not contiguous sums are wrong.
@pytest.mark.parametrize(("chunk_bytes", "elements"), [(4096, 1 << 17), (65536, 1 << 18)])
@pytest.mark.parametrize("layout", ["2", "3", "4", "2+1", "2+2"])
def test_more_operations_at_once_than_slots(layout: str, chunk_bytes: int, elements: int) -> None:
    hosts = LAYOUTS[layout]
    operations = 12
    given = many_arrays(len(hosts), operations, elements)
    arrays = many_arrays(len(hosts), operations, elements)
    _core.cluster_concurrent(hosts, [[array.view(np.uint8) for array in of_rank] for of_rank in arrays], chunk_bytes)
    for i in range(operations):
        summed = np.sum([given[rank][i] for rank in range(len(hosts))], axis=0)
        expected = summed if i % 2 == 0 else given[i % len(hosts)][i]
        for rank in range(len(hosts)):
            np.testing.assert_array_equal(arrays[rank][i], expected, err_msg=f"operation {i}, rank {rank}")


@pytest.mark.parametrize("layout", ["2", "3", "4", "2+2"])
def test_more_buckets_at_once_than_slots(layout: str) -> None:
    hosts = LAYOUTS[layout]
    given = many_arrays(len(hosts), 10, 1 << 17)
    arrays = many_arrays(len(hosts), 10, 1 << 17)
    _core.cluster_concurrent_planned(hosts, [[array.view(np.uint8) for array in of_rank] for of_rank in arrays], 16384)
    for i in range(10):
        expected = np.sum([given[rank][i] for rank in range(len(hosts))], axis=0)
        for rank in range(len(hosts)):
            np.testing.assert_array_equal(arrays[rank][i], expected, err_msg=f"bucket {i}, rank {rank}")

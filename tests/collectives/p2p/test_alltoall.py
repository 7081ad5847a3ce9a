"""Alltoall and reducescatter over ranks that are threads of this process, against NumPy; and Adasum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests import native_module
from tests.support.cluster_jobs import CHUNK_BYTES, DTYPES, allreduce, brought
from tests.support.layouts import LAYOUTS
from tests.support.rows_oracle import adasum_tree, rows_of

pytestmark = pytest.mark.native

_core = native_module.core()

AVERAGE, SUM, ADASUM = 0, 1, 2
KINDS = {**DTYPES, "int16": np.dtype("int16"), "uint16": np.dtype("uint16")}


def kinds_on_layouts(kinds: Iterable[str]) -> list[Any]:
    """Every kind on a few layouts, and float32 on all."""
    return [
        pytest.param(hosts, kind, id=f"{name}-{kind}")
        for name, hosts in LAYOUTS.items()
        for kind in kinds
        if kind == "float32" or name in ("3", "2+2")
    ]


over_layouts = pytest.mark.parametrize("hosts", LAYOUTS.values(), ids=LAYOUTS.keys())


def some_rows(rank: int, rows: int, row_bytes: int) -> np.ndarray:
    return ((np.arange(rows * row_bytes) * 7 + 31 * rank) % 251).astype(np.uint8)


def split_tables(ranks: int) -> dict[str, np.ndarray]:
    """Who sends how many rows (row) to whom (column)."""
    sender, receiver = np.indices((ranks, ranks))
    return {
        "different": (3 * sender + receiver) % 5,
        "all to the last": np.where(receiver == ranks - 1, sender + 1, 0),
        "all from rank 0": np.where(sender == 0, receiver + 1, 0),
        "nothing": np.zeros((ranks, ranks), int),
        "long": (sender + 2 * receiver) % 3 * 9000,  # more than a message of shared memory
    }


@over_layouts
def test_alltoall(hosts: list[str]) -> None:
    ranks, row_bytes = len(hosts), 12
    for name, table in split_tables(ranks).items():
        inputs = [some_rows(rank, int(table[rank].sum()), row_bytes) for rank in range(ranks)]
        parts = [np.split(inputs[rank], np.cumsum(table[rank])[:-1] * row_bytes) for rank in range(ranks)]
        results = _core.cluster_alltoall(hosts, inputs, row_bytes, table.tolist())
        for rank, result in enumerate(results):
            expected = np.concatenate([parts[sender][rank] for sender in range(ranks)])
            np.testing.assert_array_equal(np.asarray(result), expected, err_msg=f"{name}, rank {rank}")


@pytest.mark.parametrize("layout", ["1", "3", "2+2"])
def test_alltoall_without_splits(layout: str) -> None:
    """Equal parts, of a length that differs between the ranks."""
    hosts = LAYOUTS[layout]
    ranks = len(hosts)
    inputs = [some_rows(rank, ranks * (rank + 2), 4) for rank in range(ranks)]
    for rank, result in enumerate(_core.cluster_alltoall(hosts, inputs, 4, [[]] * ranks)):
        expected = np.concatenate([np.split(array, ranks)[rank] for array in inputs])
        np.testing.assert_array_equal(np.asarray(result), expected, err_msg=f"rank {rank}")


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([], "must be a multiple of the number of ranks, 3. Received: 4 rows on rank 2"),
        ([2, 2], "one entry for each of the 3 ranks. Received: 2 entries on rank 2"),
        ([5, -1, 0], "at least 0.*Received: splits=.5, -1, 0"),
        ([1, 1, 1], "sum of `splits` must be the first dimension of the tensor, 4 on rank 2"),
        ([2, 2, 1], "their sum the first dimension of the tensor, 4 on rank 2"),
        ([2**62, 2**62, 2**62], "at least 0"),
    ],
    ids=str,
)
def test_bad_splits_of_one_rank(splits: list[int], message: str) -> None:
    inputs = [some_rows(rank, rows, 4) for rank, rows in enumerate((3, 3, 4))]
    with pytest.raises(ValueError, match=message):
        _core.cluster_alltoall(LAYOUTS["3"], inputs, 4, [[1, 1, 1], [3, 0, 0], splits])


def reducescatter(hosts, inputs, dtype, rows, op, prescale=1.0, postscale=1.0) -> list[np.ndarray]:
    """Each input is two tensors, `rows` long; returns what every rank got of both, one after the other."""
    ranks, width = len(hosts), inputs[0].shape[1]
    mine = [
        sum(len(range(*part[rank].indices(10**9))) for part in map(rows_of, rows, [ranks] * 2)) for rank in range(ranks)
    ]
    outputs = [np.full((count, width), 77, KINDS[dtype]) for count in mine]
    as_bytes = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in inputs]
    into = [array.reshape(-1).view(np.uint8) for array in outputs]
    _core.cluster_reducescatter(hosts, as_bytes, into, dtype, list(rows), width, op, prescale, postscale, CHUNK_BYTES)
    return outputs


@pytest.mark.parametrize(("hosts", "dtype"), kinds_on_layouts(KINDS))
def test_reducescatter(hosts: list[str], dtype: str) -> None:
    """Rows that divide, that do not, fewer than ranks; small ones in the announcements, large ones in chunks."""
    ranks = len(hosts)
    for rows in ((ranks, 2 * ranks), (ranks - 1, ranks + 1), (0, 1), (701, 2)):
        like = dtype if dtype in DTYPES else "int32"
        inputs = [brought(rank, sum(rows) * 5, like, SUM).astype(KINDS[dtype]).reshape(-1, 5) for rank in range(ranks)]
        stack = np.stack(inputs)
        total = stack.any(axis=0) if dtype == "bool" else stack.astype(np.float64).sum(axis=0)
        first, second = total[: rows[0]], total[rows[0] :]
        results = reducescatter(hosts, inputs, dtype, rows, SUM)
        for rank, result in enumerate(results):
            expected = np.concatenate([first[rows_of(rows[0], ranks)[rank]], second[rows_of(rows[1], ranks)[rank]]])
            got = result if dtype == "bool" else result.astype(np.float64)
            np.testing.assert_array_equal(got, expected, err_msg=f"{dtype}, {rows} rows, rank {rank}")


@pytest.mark.parametrize("layout", ["3", "2+1", "4+4"])
def test_reducescatter_averages_and_scales(layout: str) -> None:
    hosts = LAYOUTS[layout]
    ranks, rows = len(hosts), (50, 300)
    inputs = [brought(rank, sum(rows) * 5, "float32", SUM).reshape(-1, 5) for rank in range(ranks)]
    results = reducescatter(hosts, inputs, "float32", rows, AVERAGE, prescale=0.5, postscale=4.0)
    mean = np.mean(inputs, axis=0) * 2.0
    for rank, result in enumerate(results):
        expected = np.concatenate([mean[:50][rows_of(50, ranks)[rank]], mean[50:][rows_of(300, ranks)[rank]]])
        np.testing.assert_allclose(result, expected, rtol=1e-6)


# --- Adasum ---


def adasum_oracle(inputs: list[np.ndarray]) -> np.ndarray:
    """`allreduce` of tests.support.cluster_jobs cuts the array into three tensors, each with its own dot products."""
    length = len(inputs[0])
    ends = [0, length // 5, length // 2, length]
    return np.concatenate([adasum_tree([array[a:b] for array in inputs]) for a, b in zip(ends, ends[1:])])


@pytest.mark.parametrize(("hosts", "dtype"), kinds_on_layouts(["float16", "bfloat16", "float32", "float64"]))
def test_adasum(hosts: list[str], dtype: str) -> None:
    random = np.random.default_rng(3)
    for length in (0, 4, 1000, 5003):
        inputs = [random.standard_normal(length).astype(DTYPES[dtype]) + i for i, _ in enumerate(hosts)]
        inputs = [array.astype(DTYPES[dtype]) for array in inputs]
        outputs = allreduce(hosts, inputs, dtype, ADASUM, planned=False)
        for output in outputs:
            assert output.tobytes() == outputs[0].tobytes()
        tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
        expected = adasum_oracle(inputs)
        np.testing.assert_allclose(outputs[0].astype(np.float64), expected, rtol=tolerance, atol=tolerance * len(hosts))


def test_adasum_of_known_vectors() -> None:
    """Parallel ones are averaged, orthogonal ones added, zeros change nothing; the factors apply around it."""
    hosts = LAYOUTS["2"]
    for a, b, expected in (
        ([2.0, 4.0], [2.0, 4.0], [2.0, 4.0]),
        ([3.0, 0.0], [0.0, 5.0], [3.0, 5.0]),
        ([0.0, 0.0], [1.0, 2.0], [1.0, 2.0]),
        ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
    ):
        # Repeated, so that each of the three tensors is made of whole copies.
        inputs = [np.tile(np.array(x), 10) for x in (a, b)]
        output = allreduce(hosts, inputs, "float64", ADASUM, False, prescale=0.5, postscale=4.0)[1]
        np.testing.assert_allclose(output, np.tile(expected, 10) * 2, rtol=1e-14)


def test_adasum_repeats_bit_for_bit_whatever_the_hosts() -> None:
    random = np.random.default_rng(5)
    inputs = [random.standard_normal(3000).astype(np.float32) for _ in range(8)]
    results = {allreduce(LAYOUTS[name], inputs, "float32", ADASUM, False)[3].tobytes() for name in ("8", "4+4", "5+3")}
    assert len(results) == 1


def test_adasum_of_integers_is_refused() -> None:
    inputs = [np.arange(5, dtype=np.int32)] * 2
    with pytest.raises(ValueError, match="op=Adasum is not defined for int32"):
        allreduce(LAYOUTS["2"], inputs, "int32", ADASUM, False)
    with pytest.raises(ValueError, match="Adasum cannot be used with plans"):
        allreduce(LAYOUTS["2"], [array.astype(np.float32) for array in inputs], "float32", ADASUM, True)

"""The exchange between nodes in 8-bit blocks: against NumPy, its bytes, and what error feedback does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests import native_module
from tests.compute.cpu.test_cpu_compute_quantise import expected
from tests.support.cluster_jobs import AVERAGE, SUM

pytestmark = pytest.mark.native

_core = native_module.core()

LEAST = 16384  # elements of a tensor that is quantised


def brought(members: int, length: int, seed: int = 0) -> list[np.ndarray]:
    return [
        np.random.default_rng([seed, m]).standard_normal(length).astype(np.float32) * (m + 1) for m in range(members)
    ]


def exchange(arrays: list[np.ndarray], errors: list[np.ndarray] | None = None) -> tuple[list[np.ndarray], list[dict]]:
    results = [array.copy() for array in arrays]
    kept = [] if errors is None else [array.view(np.uint8) for array in errors]
    return results, _core.rail_run("int8", [array.view(np.uint8) for array in results], "float32", SUM, kept)


def slice_of(length: int, members: int, member: int) -> slice:
    each = math.ceil(math.ceil(length / members) / 32) * 32
    return slice(min(length, each * member), min(length, each * (member + 1)))


def oracle(arrays: list[np.ndarray], errors: list[np.ndarray]) -> np.ndarray:
    """The sum that all members get; `errors` of each member are replaced."""
    length, members = len(arrays[0]), len(arrays)
    result = np.zeros(length, np.float32)
    for owner in range(members):
        part = slice_of(length, members, owner)
        total = arrays[owner][part].copy()
        for member in range(members):
            if member == owner:
                continue
            wanted = arrays[member][part] + errors[member][part]
            sent = expected(wanted)
            errors[member][part] = wanted - sent
            total += sent
        total += errors[owner][part]
        result[part] = expected(total)
        errors[owner][part] = total - result[part]
    return result


@pytest.mark.parametrize("members", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("length", [1, 33, 257, 4096, 10001])
def test_sums(members, length):
    errors = [np.zeros(length, np.float32) for _ in range(members)]
    kept = [array.copy() for array in errors]
    for step in range(3):
        arrays = brought(members, length, step)
        results, _ = exchange(arrays, kept)
        wanted = oracle(arrays, errors)
        for member, result in enumerate(results):
            np.testing.assert_array_equal(result, wanted, err_msg=f"member {member}, step {step}")
            np.testing.assert_array_equal(kept[member], errors[member], err_msg=f"member {member}, step {step}")


@pytest.mark.parametrize("members", [2, 4, 8])
def test_bytes(members):
    length = 8192 * members
    _, counts = exchange(brought(members, length))
    for row in counts:
        assert len(row["sent"]) == 2 * (members - 1)
        assert row["bytes"] == 2 * (members - 1) * (8192 + 8192 // 256 * 2)


def test_errors_do_not_add_up():
    """The mean of many sums: with what was rounded away it converges, without it keeps the error of one sum."""
    members, length, steps = 4, 2048, 64
    arrays = brought(members, length)
    true = np.sum(arrays, axis=0, dtype=np.float64)
    kept = [np.zeros(length, np.float32) for _ in range(members)]
    with_errors = sum(exchange(arrays, kept)[0][0].astype(np.float64) for _ in range(steps)) / steps
    without = exchange(arrays)[0][0]
    lost = np.abs(without - true).mean()
    assert np.abs(with_errors - true).mean() < lost / 20
    assert lost < 0.02 * np.abs(true).mean()


def allreduce(hosts, inputs, dtype="float32", op=SUM, planned=True, chunk=1 << 16):
    outputs = [np.full_like(array, 77) for array in inputs]
    as_bytes = ([array.view(np.uint8) for array in each] for each in (inputs, outputs))
    _core.cluster_allreduce(hosts, *as_bytes, dtype, op, 1.0, 1.0, chunk, planned, "int8")
    return outputs


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("op", [SUM, AVERAGE])
@pytest.mark.parametrize(
    ("dtype", "hosts"), [("float32", "aabb"), ("float64", "aabb"), ("float32", "abc"), ("float32", "aabbb")]
)
def test_allreduce_of_a_cluster(hosts, dtype, op, planned):
    inputs = [array.astype(dtype) for array in brought(len(hosts), 5 * LEAST + 77)]
    outputs = allreduce(list(hosts), inputs, dtype, op, planned)
    true = np.sum(inputs, axis=0, dtype=np.float64) / (len(hosts) if op == AVERAGE else 1)
    for output in outputs:
        assert output.tobytes() == outputs[0].tobytes()
    error = np.abs(outputs[0] - true)
    assert 0 < error.mean() < 0.02 * np.abs(true).mean()
    assert error.max() < 0.05 * np.abs(true).max()


@pytest.mark.parametrize(
    ("hosts", "length", "dtype", "op"),
    [
        ("aabb", LEAST - 1, "float32", SUM),  # too small
        ("aaaa", 2 * LEAST, "float32", SUM),  # one node
        ("aabb", 2 * LEAST, "int32", SUM),
        ("aabb", 2 * LEAST, "float32", 4),  # Max
    ],
)
@pytest.mark.parametrize("planned", [False, True])
def test_what_is_sent_as_it_is(hosts, length, dtype, op, planned):
    if planned and op == 4:
        pytest.skip("plans are sums and averages")
    inputs = [((np.arange(length) * 7 + 13 * rank) % 1009).astype(dtype) for rank in range(len(hosts))]
    true = np.max(inputs, axis=0) if op == 4 else np.sum(inputs, axis=0)
    for output in allreduce(list(hosts), inputs, dtype, op, planned):
        np.testing.assert_array_equal(output, true)

"""The algorithms between nodes, one by one: results against NumPy, and what they send against their formulas.

Members are stepped in turn on one thread, over queues, without an engine.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests import native_module

pytestmark = pytest.mark.native

_core = native_module.core()

AVERAGE, SUM, MIN, MAX, PRODUCT = 0, 1, 3, 4, 5
ALGORITHMS = _core.algorithms()
MEMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
DTYPES = {
    name: np.dtype(getattr(ml_dtypes, name, None) or name)
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
}

over_algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS)
over_members = pytest.mark.parametrize("members", MEMBERS)


def run(algorithm: str, arrays: list[np.ndarray], dtype: str, op: int = SUM) -> tuple[list[np.ndarray], list[dict]]:
    """Every member's result, and what it sent."""
    results = [array.copy() for array in arrays]
    counts = _core.rail_run(algorithm, [array.view(np.uint8) for array in results], dtype, op)
    return results, counts


def values(member: int, length: int, dtype: str, op: int) -> np.ndarray:
    """Different on every member and at every position; every result is exact in every dtype."""
    position = np.arange(length)
    if dtype == "bool":
        return (position + member) % 3 == 0
    if op == PRODUCT:
        return np.array([1, 2, 1, 1])[(position + member) % 4].astype(DTYPES[dtype])
    return ((5 * position + 3 * member) % 7 + 1).astype(DTYPES[dtype])


def expected(arrays: list[np.ndarray], op: int) -> np.ndarray:
    stack = np.stack(arrays)
    if stack.dtype == bool:
        return np.asarray(stack.any(axis=0) if op in (SUM, MAX) else stack.all(axis=0))
    ufunc = {SUM: np.add, MIN: np.minimum, MAX: np.maximum, PRODUCT: np.multiply}[op]
    return np.asarray(ufunc.reduce(stack.astype(np.float64), axis=0))


def noise(members: int, length: int, dtype: str, seed: int = 1) -> list[np.ndarray]:
    """Values of many magnitudes, so that sums in different orders differ."""
    random = np.random.default_rng(seed)
    exponents = random.integers(-6, 6, (members, length))
    return list((random.standard_normal((members, length)) * 2.0**exponents).astype(DTYPES[dtype]))


@over_algorithms
@over_members
@pytest.mark.parametrize("dtype", DTYPES)
def test_result(algorithm: str, members: int, dtype: str) -> None:
    granule = 128 // DTYPES[dtype].itemsize
    for length in (0, 1, members - 1, members + 1, granule + 1, members * granule, 5 * granule * members + 3):
        for op in (SUM, MIN, MAX, PRODUCT):
            arrays = [values(member, length, dtype, op) for member in range(members)]
            results, _ = run(algorithm, arrays, dtype, op)
            for member, result in enumerate(results):
                got = result if dtype == "bool" else result.astype(np.float64)
                what = f"{length} elements, op {op}, member {member}"
                np.testing.assert_array_equal(got, expected(arrays, op), err_msg=what)


@over_algorithms
@pytest.mark.parametrize("members", MEMBERS[1:])
def test_counts_are_those_of_the_formula(algorithm: str, members: int) -> None:
    """The busiest member's; lengths divide, so that slices are equal."""
    steps, messages, traffic = _core.rail_cost(algorithm, members)
    size = math.lcm(*MEMBERS) * 128
    _, counts = run(algorithm, [np.zeros(size, np.uint8)] * members, "uint8")
    assert max(count["bytes"] for count in counts) == round(traffic * size)
    assert max(len(count["sent"]) for count in counts) == messages
    # When members are folded, not every chain is as long as the longest that there could be.
    folded = members & (members - 1) != 0 and algorithm.endswith("doubling")
    assert steps - max(count["steps"] for count in counts) in ((0, 1) if folded else (0,))


def read_formula(text: str, members: int) -> float:
    """The value of a formula of the documents for S = 1: P members, Q the largest power of two up to P, [.] 0 or 1."""
    power = 2 ** (members.bit_length() - 1)
    names = {"P": members, "Q": power, "S": 1, "log2": math.log2}
    return eval(text.replace("[P>Q]", "(P>Q)"), {"__builtins__": {}}, names)


@over_algorithms
def test_formulas_of_the_documents_are_those_of_the_code(algorithm: str) -> None:
    document = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{algorithm}` \|(.*)\|(.*)\|(.*)\|$", document, re.MULTILINE)
    for members in (2, 3, 4, 7, 8, 64, 100):
        figures = [read_formula(formula.strip(" `"), members) for formula in row]
        assert figures == pytest.approx(_core.rail_cost(algorithm, members))


@over_algorithms
@over_members
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_same_bits_on_all_members_and_every_time(algorithm: str, members: int, dtype: str) -> None:
    arrays = noise(members, 1001, dtype)
    first, _ = run(algorithm, arrays, dtype)
    again, _ = run(algorithm, arrays, dtype)
    assert {result.tobytes() for result in first + again} == {first[0].tobytes()}


@over_members
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_from_all_that_are_chosen_by_cost(members: int, dtype: str) -> None:
    """A choice that depends on a measurement must not change a sum."""
    arrays = noise(members, 2003, dtype)
    bits = {name: run(name, arrays, dtype)[0][0].tobytes() for name in ALGORITHMS}
    assert bits["direct"] == bits["recursive_doubling"] == bits["halving_doubling"]
    if members > 3:
        assert bits["ring"] != bits["direct"], "the values do not tell orders of summation apart"


@over_members
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_direct_rounds_half_types_once(members: int, dtype: str) -> None:
    arrays = noise(members, 777, dtype)
    results, _ = run("direct", arrays, dtype)
    wide = np.zeros(777, np.float32)
    for array in arrays:
        wide = wide + array.astype(np.float32)
    np.testing.assert_array_equal(results[0].view(np.uint16), wide.astype(DTYPES[dtype]).view(np.uint16))


@over_algorithms
@over_members
def test_half_types_are_summed_in_float32(algorithm: str, members: int) -> None:
    """Rounded at every hop at most: each of its roundings costs half a unit in the last place of a partial sum."""
    arrays = [np.abs(array) for array in noise(members, 777, "bfloat16")]
    results, _ = run(algorithm, arrays, "bfloat16")
    exact = np.sum([array.astype(np.float64) for array in arrays], axis=0)
    tolerance = members * float(ml_dtypes.finfo("bfloat16").eps) / 2
    np.testing.assert_allclose(results[0].astype(np.float64), exact, rtol=1.01 * tolerance)


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="no algorithm 'mesh'"):
        _core.rail_run("mesh", [np.zeros(4, np.uint8)], "uint8", SUM)

"""Narrower dtypes on the wire: rounded once per contribution and once per hop, summed in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.support.cluster_jobs import AVERAGE, DTYPES, MAX, SUM, allreduce, brought, check, reduced
from tests.support.layouts import LAYOUTS

pytestmark = pytest.mark.native

MAX_INLINE_BYTES = 1024  # runtime/requests/inline_data.h
WIRES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}

# On at most two nodes no algorithm between them rounds more than once.
over_two_levels = pytest.mark.parametrize("layout", ["1", "2", "3", "2+1", "4", "2+2", "interleaved 2+2", "4+4", "5+3"])
over_wires = pytest.mark.parametrize("wire", WIRES)
over_matching = pytest.mark.parametrize("planned", [True, False], ids=["planned", "named"])


def values(rank: int, length: int) -> np.ndarray:
    """More digits than any wire dtype keeps, all within a factor of four: sums of rounded ones are exact in float32."""
    position = np.arange(length)
    return (1 + 3 * ((position * 7919 + rank * 104729) % 10007) / 10007).astype(np.float32)


def summed_over_two_levels(inputs: list[np.ndarray], hosts: list[str], wire: np.dtype) -> np.ndarray:
    """What travels is rounded: each contribution, the sum of each node, the sum of the nodes."""
    sums = []
    for host in dict.fromkeys(hosts):
        on_host = [array.astype(wire).astype(np.float32) for array, name in zip(inputs, hosts) if name == host]
        sums.append(np.sum(on_host, axis=0, dtype=np.float32).astype(wire).astype(np.float32))
    return np.sum(sums, axis=0, dtype=np.float32).astype(wire)


@over_matching
@over_wires
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@over_two_levels
def test_the_sum_rounded_at_every_hop(layout: str, dtype: str, wire: str, planned: bool) -> None:
    hosts = LAYOUTS[layout]
    for length in (1, 1000, 5003):
        inputs = [values(rank, length).astype(dtype) for rank in range(len(hosts))]
        # What fits into a control message is summed by one rank, hence in one hop.
        carried = not planned and length * WIRES[wire].itemsize <= MAX_INLINE_BYTES
        hops = ["one"] * len(hosts) if carried else hosts
        expected = summed_over_two_levels(inputs, hops, WIRES[wire]).astype(np.float64)
        assert length == 1 or np.any(expected != reduced(inputs, SUM)), "the test values must need rounding"
        outputs = allreduce(hosts, inputs, dtype, SUM, planned, wire=wire)
        check(outputs, expected, True, f"{dtype} over {wire}, {length} elements")


@over_wires
@pytest.mark.parametrize("layout", ["1+1+1+1", "2+2+2+2", "1+4+2"])
def test_more_nodes_round_no_worse_than_once_per_hop(layout: str, wire: str) -> None:
    hosts = LAYOUTS[layout]
    inputs = [values(rank, 3000) for rank in range(len(hosts))]
    output = allreduce(hosts, inputs, "float32", SUM, planned=True, wire=wire)[0]
    hops = 1 + len(set(hosts))
    error = np.abs(output - reduced(inputs, SUM)) / reduced(inputs, SUM)
    half_a_unit = float(ml_dtypes.finfo(WIRES[wire]).eps) / 2
    assert np.all(error <= hops * half_a_unit)
    assert output.tobytes() == allreduce(hosts, inputs, "float32", SUM, planned=True, wire=wire)[0].tobytes()


@over_matching
@over_wires
@pytest.mark.parametrize("layout", ["3", "4", "7"])
def test_sums_are_taken_in_float32(layout: str, wire: str, planned: bool) -> None:
    """A large value plus ones: each one is less than half a unit of the wire dtype, all of them together are not."""
    hosts = LAYOUTS[layout]
    large = 2.0 / float(ml_dtypes.finfo(WIRES[wire]).eps)
    inputs = [np.full(100, large if rank == 0 else 1.0, np.float32) for rank in range(len(hosts))]
    in_half = inputs[0].astype(WIRES[wire])
    for array in inputs[1:]:
        in_half = (in_half + array.astype(WIRES[wire])).astype(WIRES[wire])
    assert np.all(in_half.astype(float) == large), "accumulating in the wire dtype must lose the ones"
    whole = (np.float32(large) + len(hosts) - 1).astype(WIRES[wire])
    check(allreduce(hosts, inputs, "float32", SUM, planned, wire=wire), np.full(100, float(whole)), True, wire)


@over_matching
@over_wires
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "bool", "float16", "bfloat16"])
def test_what_is_not_wider_travels_as_it_is(dtype: str, wire: str, planned: bool) -> None:
    hosts = LAYOUTS["2+2"]
    inputs = [brought(rank, 3000, dtype, MAX) for rank in range(len(hosts))]
    if dtype in ("int32", "int64"):
        inputs = [array + 1_000_003 for array in inputs]  # more digits than a wire dtype has
    if DTYPES[dtype].kind in "fV":
        inputs = [(array.astype(np.float64) * 65 / 64).astype(DTYPES[dtype]) for array in inputs]
    check(allreduce(hosts, inputs, dtype, MAX, planned, wire=wire), reduced(inputs, MAX), True, f"{dtype} over {wire}")


@over_matching
@over_wires
def test_scales_are_applied_before_and_after_the_wire(wire: str, planned: bool) -> None:
    """Powers of two, so that only the range is at stake: 1e5 does not fit into float16, 1e5 / 64 does."""
    hosts = LAYOUTS["2+2"]
    inputs = [np.full(500, 102400.0 * (rank + 1), np.float32) for rank in range(len(hosts))]
    outputs = allreduce(hosts, inputs, "float32", AVERAGE, planned, 1 / 64, 64.0, wire=wire)
    check(outputs, np.full(500, 256000.0), True, wire)

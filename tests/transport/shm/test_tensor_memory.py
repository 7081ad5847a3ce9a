"""Sums of tensors that the ranks of a node read where they lie, against NumPy.

Ranks are threads of this process, all of whose memory counts as shared; what makes it so is tested in
tests/ops/allocator/test_shared_allocator.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests import native_module
from tests.support.cluster_jobs import AVERAGE, DTYPES, MAX, PRODUCT, SUM, brought, check, reduced
from tests.support.layouts import LAYOUTS

pytestmark = pytest.mark.native

_core = native_module.core()

LEAST_REFERRED = 2048  # transport/shm/node_channel.h
CHUNK_BYTES = 64 << 10

over_layouts = pytest.mark.parametrize("layout", ["1", "2", "1+1", "3", "2+1", "4", "2+2", "1+4+2", "8", "5+3"])
over_matching = pytest.mark.parametrize("planned", [True, False], ids=["planned", "named"])


def allreduce(
    layout: str, inputs: list[np.ndarray], dtype: str, op: int, planned: bool, in_place: bool, **more: object
) -> tuple[list[np.ndarray], list[int]]:
    """The results, and the bytes of each rank's tensors that others read where they lay."""
    sources = [array.copy() for array in inputs]
    outputs = sources if in_place else [np.full_like(array, 77) for array in inputs]
    arguments = {"prescale": 1.0, "postscale": 1.0, "chunk_bytes": CHUNK_BYTES, "shared_tensors": True} | more
    referred = _core.cluster_allreduce(
        LAYOUTS[layout], [a.view(np.uint8) for a in sources], [a.view(np.uint8) for a in outputs], dtype, op,
        planned=planned, **arguments,
    )  # fmt: skip
    if not in_place:
        assert all(np.array_equal(source, given) for source, given in zip(sources, inputs)), "an input has changed"
    return outputs, referred


def ranks_per_node(layout: str) -> list[int]:
    hosts = LAYOUTS[layout]
    return [hosts.count(host) for host in hosts]


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "elsewhere"])
@over_matching
@over_layouts
def test_allreduce(layout: str, planned: bool, in_place: bool) -> None:
    """Of lengths that fill no chunk, one, and many with an odd rest."""
    hosts = LAYOUTS[layout]
    per_chunk = CHUNK_BYTES // 4
    for length in (1, 1000, per_chunk, 5 * per_chunk + 77):
        for op in (AVERAGE, SUM, MAX, PRODUCT):
            inputs = [brought(rank, length, "float32", op) for rank in range(len(hosts))]
            outputs, referred = allreduce(layout, inputs, "float32", op, planned, in_place)
            check(outputs, reduced(inputs, op), op != AVERAGE, f"op {op}, {length} elements")
            for rank, of_node in enumerate(ranks_per_node(layout)):
                expected = of_node > 1 and length > per_chunk
                assert (referred[rank] > 0) == expected or length == per_chunk, (rank, length, referred)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["2", "3", "2+2"])
def test_dtypes(layout: str, dtype: str) -> None:
    hosts = LAYOUTS[layout]
    for op in (SUM, AVERAGE):
        if op == AVERAGE and dtype == "bool":
            continue
        inputs = [brought(rank, 100_003, dtype, op) for rank in range(len(hosts))]
        outputs, referred = allreduce(layout, inputs, dtype, op, True, in_place=True)
        exact = op != AVERAGE or "float" not in dtype
        check(outputs, reduced(inputs, op), exact, f"{dtype}, op {op}")
        assert min(referred) > 0


@pytest.mark.parametrize("layout", ["2", "4", "2+2"])
def test_what_is_read_in_place(layout: str) -> None:
    """With another dtype on the wire nothing; with a factor before the sum only sums; with one after it everything."""
    hosts, length = LAYOUTS[layout], 80_000
    inputs = [brought(rank, length, "float32", SUM) for rank in range(len(hosts))]
    total = reduced(inputs, SUM)
    plain, everything = allreduce(layout, inputs, "float32", SUM, True, False)
    after, also_everything = allreduce(layout, inputs, "float32", SUM, True, False, postscale=0.25)
    before, sums = allreduce(layout, inputs, "float32", SUM, True, False, prescale=0.5)
    wire, nothing = allreduce(layout, inputs, "float32", SUM, True, False, wire_dtype="bfloat16")
    check(plain, total, True, "plain")
    check(after, total / 4, True, "factor after")
    check(before, total / 2, True, "factor before")
    check(wire, total, True, "bfloat16")  # whole numbers below 256
    locals_ = ranks_per_node(layout)[0]
    assert everything == also_everything
    # The others' shares of my input to one rank each, my share of the sum to all others.
    expected = [2 * (locals_ - 1) / locals_ * 4 * length] * len(hosts)
    assert everything == pytest.approx(expected, rel=0.05)
    assert [2 * value for value in sums] == pytest.approx(everything, rel=0.1)
    assert nothing == [0] * len(hosts)


def test_sums_are_those_of_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, for values whose sum depends on the order."""
    monkeypatch.delenv("SMDDP_TEST_SHARED_TENSORS", raising=False)  # with which all tests can be run
    generator = np.random.default_rng(5)
    inputs = [generator.standard_normal(70_001).astype(np.float32) * 10.0**rank for rank in range(4)]
    for layout in ("4", "2+2"):
        for op, factors in ((SUM, {}), (AVERAGE, {"postscale": 1 / 3})):
            shared, referred = allreduce(layout, inputs, "float32", op, True, False, **factors)
            slots, none = allreduce(layout, inputs, "float32", op, True, False, shared_tensors=False, **factors)
            assert min(referred) > 0
            assert max(none) == 0
            for mine, theirs in zip(shared, slots):
                np.testing.assert_array_equal(mine.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("layout", ["2", "3", "2+2"])
def test_many_tensors_at_once(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones, which are copied, between large ones, in another order on every rank.

    Each is a bucket, or a request, every second a broadcast. Slots that refer to tensors are evacuated where a rank is
    not ready for them.
    """
    monkeypatch.setenv("SMDDP_TEST_SHARED_TENSORS", "1")
    hosts = LAYOUTS[layout]
    sizes = [40_000, 3, 700, 25_000, 513, 90_001, 1, 512, 33_333, 2_000] * 3
    arrays = [
        [(np.arange(size) % 91 + 7 * rank + place).astype(np.float32) for place, size in enumerate(sizes)]
        for rank in range(len(hosts))
    ]
    sums = [np.sum([of_rank[place] for of_rank in arrays], axis=0) for place in range(len(sizes))]
    broadcast = [arrays[place % len(hosts)][place] if place % 2 else sums[place] for place in range(len(sizes))]
    for run, expected in ((_core.cluster_concurrent_planned, sums), (_core.cluster_concurrent, broadcast)):
        given = [[array.copy() for array in of_rank] for of_rank in arrays]
        run(hosts, [[array.view(np.uint8) for array in of_rank] for of_rank in given], 16 << 10)
        for rank, of_rank in enumerate(given):
            for place, array in enumerate(of_rank):
                np.testing.assert_array_equal(array, expected[place], err_msg=f"rank {rank}, tensor {place}")


def test_short_pieces_are_copied() -> None:
    """A slice of a chunk that is shorter than the least that is referred to."""
    elements = LEAST_REFERRED // 4
    inputs = [brought(rank, 2 * elements - 32, "float32", SUM) for rank in range(2)]
    outputs, referred = allreduce("2", inputs, "float32", SUM, True, False)
    check(outputs, reduced(inputs, SUM), True, "short")
    assert referred == [0, 0]

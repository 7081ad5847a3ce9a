"""The bytes that travel: those of the balanced exchange, half of them with a wire dtype of half the width."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf._loader import core

CHUNK_BYTES = 256 << 10  # the default of SMDDP_CHUNK_BYTES
ELEMENT_BYTES = 4


def length(bounds: tuple[int, int]) -> int:
    return bounds[1] - bounds[0]


def expected_rail_bytes(elements: int, layout: dict) -> int:
    """What this rank must send to other nodes, from the shard arithmetic alone."""
    if not layout["is_reducer"] or layout["node_count"] == 1:
        return 0
    nodes, me = layout["node_count"], layout["rail"].index(layout["rank"])
    sent = 0
    for start in range(0, elements, CHUNK_BYTES // ELEMENT_BYTES):
        chunk = min(elements - start, CHUNK_BYTES // ELEMENT_BYTES)
        shard = length(core().shard_of(chunk, ELEMENT_BYTES, layout["rail_count"], layout["local_rank"]))
        parts = [length(core().shard_of(shard, ELEMENT_BYTES, nodes, node)) for node in range(nodes)]
        sent += sum(parts) - parts[me]  # everybody's part of my sums
        sent += (nodes - 1) * parts[me]  # my part, summed, to everybody
    return sent * ELEMENT_BYTES


@pytest.mark.parametrize("elements", [1, 1000, 131_072, 1_000_003])
def test_rail_bytes(hvd, rank, mpi, elements):
    # In every arrangement of the suites a node holds consecutive ranks: the first one names it.
    hosts = mpi.allgather(rank - hvd.local_rank())
    layout = core().topology(rank, [str(host) for host in hosts])
    assert layout["local_size"] == hvd.local_size()
    array = np.arange(elements, dtype=np.float32) % 97 + rank
    before = core().stats()["rail_bytes_sent"]
    core().allreduce([array], "float32", f"traffic.{elements}", int(hvd.Sum))
    assert core().stats()["rail_bytes_sent"] - before == expected_rail_bytes(elements, layout)


def bytes_sent(array: np.ndarray, name: str, wire: str) -> tuple[int, int]:
    """What an allreduce makes this rank send, to its node and to the others."""
    before = core().stats()
    core().allreduce([array], "float32", name, 1, wire_dtype=wire)
    after = core().stats()
    return tuple(after[key] - before[key] for key in ("node_bytes_sent", "rail_bytes_sent"))


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_a_wire_dtype_halves_the_bytes(hvd, rank, size, wire):
    """A length that every rank and node divides into aligned shards, in both widths."""
    array = np.arange(size * 65536, dtype=np.float32) % 97 + rank
    control, whole, half = (
        bytes_sent(data, f"wire.{wire}", dtype) for data, dtype in ((array[:0], ""), (array, ""), (array, wire))
    )
    assert size == 1 or sum(whole) > sum(control)
    assert [2 * (sent - base) for sent, base in zip(half, control)] == [
        sent - base for sent, base in zip(whole, control)
    ]
    expected = (np.arange(array.size) % 97 + (size - 1) / 2) * size * size  # the second sum is of the first
    np.testing.assert_allclose(array, expected, rtol=1e-2)

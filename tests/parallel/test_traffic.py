"""The bytes that leave a node are those of the balanced exchange: every reducer sends 2 (N-1)/N of its shard."""

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

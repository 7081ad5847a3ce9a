"""The bytes that travel: those of the algorithm in use (docs/algorithms.md), half of them with a wire dtype of half the
width."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_module import core

CHUNK_BYTES = 256 << 10  # the default of SMDDP_CHUNK_BYTES
ELEMENT_BYTES = 4
SHARD_ALIGNMENT = 128
CARRIED_BYTES = 1024  # so much travels inside control messages, which are not counted


def length(bounds: tuple[int, int]) -> int:
    return bounds[1] - bounds[0]


def blocks_of(shard: int, count: int) -> list[int]:
    return [length(core().shard_of(shard, ELEMENT_BYTES, count, block)) for block in range(count)]


def direct(shard: int, nodes: int, me: int) -> int:
    """Everybody's part of my sums, and my part, summed, to everybody."""
    parts = blocks_of(shard, nodes)
    return sum(parts) - parts[me] + (nodes - 1) * parts[me]


def ring(shard: int, nodes: int, me: int) -> int:
    """All but one part while summing, all but one while the sums go round."""
    parts = blocks_of(shard, nodes)
    return 2 * sum(parts) - parts[(me + 1) % nodes] - parts[(me + 2) % nodes]


def place_in_fold(nodes: int, me: int) -> tuple[int, int, bool]:
    """How many take part, my place among them (-1: none), and whether I give a result back."""
    power = 1 << (nodes.bit_length() - 1)
    pairs = nodes - power
    if me >= 2 * pairs:
        return power, me - pairs, False
    return power, me // 2 if me % 2 else -1, bool(me % 2)


def recursive_doubling(shard: int, nodes: int, me: int) -> int:
    power, place, gives_back = place_in_fold(nodes, me)
    return shard * (1 if place < 0 else power.bit_length() - 1 + gives_back)


def halving_doubling(shard: int, nodes: int, me: int) -> int:
    """Away with what the peers keep, down to block `place`; then every group of blocks that I complete, once."""
    power, place, gives_back = place_in_fold(nodes, me)
    if place < 0:
        return shard
    parts = blocks_of(shard, power)
    sent = sum(parts) - parts[place] + shard * gives_back
    for distance in (1 << k for k in range(power.bit_length() - 1)):
        first = place // distance * distance
        sent += sum(parts[first : first + distance])
    return sent


FORMULAS = {f.__name__: f for f in (direct, ring, recursive_doubling, halving_doubling)}


def expected_rail_bytes(elements: int, layout: dict, algorithm: str) -> int:
    """What this rank must send to other nodes."""
    if not layout["is_reducer"] or layout["node_count"] == 1 or elements * ELEMENT_BYTES <= CARRIED_BYTES:
        return 0
    nodes, me = layout["node_count"], layout["rail"].index(layout["rank"])
    sent = 0
    for start in range(0, elements, CHUNK_BYTES // ELEMENT_BYTES):
        chunk = min(elements - start, CHUNK_BYTES // ELEMENT_BYTES)
        shard = length(core().shard_of(chunk, ELEMENT_BYTES, layout["rail_count"], layout["local_rank"]))
        sent += FORMULAS[algorithm](shard, nodes, me)
    return sent * ELEMENT_BYTES


@pytest.mark.parametrize("elements", [256, 257, 1000, 131_072, 1_000_003])
def test_rail_bytes(hvd, rank, mpi, elements):
    # In every arrangement of the suites a node holds consecutive ranks: the first one names it.
    hosts = mpi.allgather(rank - hvd.local_rank())
    layout = core().topology(rank, [str(host) for host in hosts])
    assert layout["local_size"] == hvd.local_size()
    algorithm = core().rail_algorithm(elements, "float32")
    assert mpi.allgather(algorithm) == [algorithm] * hvd.size()
    array = np.arange(elements, dtype=np.float32) % 97 + rank
    before = core().stats()["rail_bytes_sent"]
    core().allreduce([array], "float32", f"traffic.{elements}", int(hvd.Sum))
    assert core().stats()["rail_bytes_sent"] - before == expected_rail_bytes(elements, layout, algorithm)


def test_link_was_measured(hvd, mpi):
    """All ranks know the same figures, or none where there is one node."""
    hosts = len(set(mpi.allgather(mpi.rank - hvd.local_rank())))
    figures = [core().stats()[key] for key in ("rail_latency_us", "rail_bandwidth_mbps")]
    assert mpi.allgather(figures) == [figures] * hvd.size()
    assert all(figure > 0 for figure in figures) == (hosts > 1)


def bytes_sent(array: np.ndarray, name: str, wire: str) -> tuple[int, int]:
    """What an allreduce makes this rank send, to its node and to the others."""
    before = core().stats()
    core().allreduce([array], "float32", name, 1, wire_dtype=wire)
    after = core().stats()
    return tuple(after[key] - before[key] for key in ("node_bytes_sent", "rail_bytes_sent"))


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_a_wire_dtype_halves_the_bytes(hvd, rank, size, wire):
    """Exactly, where ranks and nodes divide a chunk into aligned shards; else up to the alignment of the last one."""
    array = np.arange(size * 65536, dtype=np.float32) % 97 + rank
    control, whole, half = (
        bytes_sent(data, f"wire.{wire}", dtype) for data, dtype in ((array[:0], ""), (array, ""), (array, wire))
    )
    assert size == 1 or sum(whole) > sum(control)
    chunks = array.nbytes // CHUNK_BYTES
    slack = 0 if size & (size - 1) == 0 else 2 * SHARD_ALIGNMENT * size * chunks
    for of_whole, of_half, base in zip(whole, half, control):
        assert abs(2 * (of_half - base) - (of_whole - base)) <= slack
    expected = (np.arange(array.size) % 97 + (size - 1) / 2) * size * size  # the second sum is of the first
    np.testing.assert_allclose(array, expected, rtol=1e-2)

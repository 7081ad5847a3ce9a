"""The bytes that travel: those of the algorithm in use (docs/algorithms.md), half of them with a wire dtype of half the
width."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_module import core
from tests.support.traffic_formulas import ELEMENT_BYTES, FORMULAS, length

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")

CHUNK_BYTES = 256 << 10  # the default of SMDDP_CHUNK_BYTES
SLICE_ALIGNMENT = 128
CARRIED_BYTES = 1024  # so much travels inside control messages, which are not counted


def expected_rail_bytes(elements: int, layout: dict, algorithm: str) -> int:
    """What this rank must send to other nodes."""
    if not layout["is_reducer"] or layout["node_count"] == 1 or elements * ELEMENT_BYTES <= CARRIED_BYTES:
        return 0
    nodes, me = layout["node_count"], layout["rail"].index(layout["rank"])
    sent = 0
    for start in range(0, elements, CHUNK_BYTES // ELEMENT_BYTES):
        chunk = min(elements - start, CHUNK_BYTES // ELEMENT_BYTES)
        own = length(core().slice_of(chunk, ELEMENT_BYTES, layout["rail_count"], layout["local_rank"]))
        sent += FORMULAS[algorithm](own, nodes, me)
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


def gathered_rail_bytes(mpi, hvd, call) -> tuple[list[int], list[int]]:
    """What `call` makes each node, and each rank of my node, send to other nodes."""
    before = core().stats()["rail_bytes_sent"]
    call()
    sent = mpi.allgather((hvd.cross_rank(), core().stats()["rail_bytes_sent"] - before))
    nodes = max(node for node, _ in mpi.allgather((hvd.cross_rank(), 0))) + 1
    of_node = [sum(count for at, count in sent if at == node) for node in range(nodes)]
    return of_node, [count for at, count in sent if at == hvd.cross_rank()]


@pytest.mark.parametrize("rows", [401, 3001, 100_003])
def test_an_allgather_sends_a_node_every_byte_once(hvd, rank, size, mpi, rows):
    """B bytes in total, B_i of node i: node i sends B - B_(i+1), in equal shares over its rails. Above 4 KiB."""
    of_rank = [rows * (peer + 1) + peer for peer in range(size)]
    blocks = [
        (np.arange(3 * count) % 1009 + 7 * peer).astype(np.float32).reshape(-1, 3) for peer, count in enumerate(of_rank)
    ]
    results: list[np.ndarray] = []
    name = f"traffic.allgather.{rows}"
    of_node, of_mine = gathered_rail_bytes(
        mpi, hvd, lambda: results.append(core().allgather(blocks[rank], "float32", name)[0])
    )
    np.testing.assert_array_equal(results[0].view(np.float32).reshape(-1, 3), np.concatenate(blocks))
    places = mpi.allgather(hvd.cross_rank())
    nodes = max(places) + 1
    block = [sum(blocks[peer].nbytes for peer in range(size) if places[peer] == node) for node in range(nodes)]
    assert of_node == [sum(block) - block[(node + 1) % nodes] if nodes > 1 else 0 for node in range(nodes)]
    check_shares(of_mine, sum(block) // 4096 + nodes)


@pytest.mark.parametrize("root_of_size", [0.0, 0.99])
def test_a_broadcast_passes_the_nodes_as_a_chain(hvd, rank, size, mpi, root_of_size):
    """Every node sends all bytes once, except the last of the chain, in equal shares over its rails."""
    root = int(root_of_size * size)
    array = (np.arange(700_001) % 1013 + 3 * rank).astype(np.float32)
    name = f"traffic.broadcast.{root}"
    of_node, of_mine = gathered_rail_bytes(mpi, hvd, lambda: core().broadcast([array], "float32", root, name))
    np.testing.assert_array_equal(array, np.arange(700_001) % 1013 + 3 * root)
    nodes, root_node = len(of_node), mpi.allgather(hvd.cross_rank())[root]
    assert of_node == [0 if (node + 1) % nodes == root_node else array.nbytes for node in range(nodes)]
    check_shares(of_mine, array.nbytes // 4096 + nodes)


def check_shares(sent_by_rank: list[int], chunks: int) -> None:
    """The ranks of a node that send at all send equally much; shares of a chunk may differ by a byte."""
    sending = [count for count in sent_by_rank if count]
    assert not sending or max(sending) - min(sending) <= chunks


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
    """Exactly, where ranks and nodes divide a chunk into aligned slices; else up to the alignment of the last one."""
    array = np.arange(size * 65536, dtype=np.float32) % 97 + rank
    control, whole, half = (
        bytes_sent(data, f"wire.{wire}", dtype) for data, dtype in ((array[:0], ""), (array, ""), (array, wire))
    )
    assert size == 1 or sum(whole) > sum(control)
    chunks = array.nbytes // CHUNK_BYTES
    slack = 0 if size & (size - 1) == 0 else 2 * SLICE_ALIGNMENT * size * chunks
    for of_whole, of_half, base in zip(whole, half, control):
        assert abs(2 * (of_half - base) - (of_whole - base)) <= slack
    expected = (np.arange(array.size) % 97 + (size - 1) / 2) * size * size  # the second sum is of the first
    np.testing.assert_allclose(array, expected, rtol=1e-2)

"""Plans with parts over ranks that are threads of this process: several nodes, degrees, dtypes and sizes."""

from __future__ import annotations

import numpy as np
import pytest

from tests import native_module
from tests.support.cluster_jobs import AVERAGE, CHUNK_BYTES, DTYPES, SUM

pytestmark = pytest.mark.native

_core = native_module.core()

LAYOUTS = {(1, 1): [1], (1, 4): [1, 2, 4], (2, 1): [1, 2], (2, 2): [1, 2, 4], (4, 1): [1, 2, 4], (3, 2): [1, 2, 6]}
LAYOUTS[(4, 2)] = [1, 2, 4, 8]
LAYOUTS[(2, 4)] = [1, 2, 4, 8]
CASES = [(*shape, parts) for shape, degrees in LAYOUTS.items() for parts in degrees]
LENGTHS = [1, 0, 37, 5003, 256, 3]
ALIGNMENT = 128


def hosts_of(nodes: int, local: int) -> list[str]:
    return [f"n{rank // local}" for rank in range(nodes * local)]


def part_of(length: int, parts: int) -> int:
    return -(-length // (16 * parts)) * 16


def cut(array: np.ndarray, lengths: list[int], parts: int, place: int) -> np.ndarray:
    """The parts of that place of tensors that lie one after another."""
    pieces, begin = [], 0
    for length in lengths:
        part = part_of(length, parts)
        piece = np.zeros([part], array.dtype)
        inside = array[begin : begin + length][place * part : (place + 1) * part]
        piece[: inside.size] = inside
        pieces.append(piece)
        begin += length
    return np.concatenate(pieces)


def run(hosts, inputs, sizes, dtype, lengths, gathers, parts, op=SUM, postscale=1.0, wire="", chunk=CHUNK_BYTES):
    outputs = [np.full([size], 77).astype(DTYPES[dtype]) for size in sizes]
    sent = _core.cluster_with_parts(
        hosts,
        [array.view(np.uint8) for array in inputs],
        [array.view(np.uint8) for array in outputs],
        dtype,
        lengths,
        gathers,
        parts,
        op,
        postscale,
        chunk,
        wire,
    )
    return outputs, sent


def reduce(hosts, inputs, dtype, lengths, parts, **how):
    size = sum(part_of(length, parts) for length in lengths)
    return run(hosts, inputs, [size] * len(hosts), dtype, lengths, False, parts, **how)


def gather(hosts, pieces, dtype, lengths, parts, **how):
    return run(hosts, pieces, [sum(lengths)] * len(hosts), dtype, lengths, True, parts, **how)


def brought(rank: int, length: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=length).astype(DTYPES[dtype])


def allreduced(hosts, inputs, dtype, op, postscale, wire):
    outputs = [np.zeros_like(array) for array in inputs]
    arrays = ([array.view(np.uint8) for array in each] for each in (inputs, outputs))
    _core.cluster_allreduce(hosts, *arrays, dtype, op, 1.0, postscale, CHUNK_BYTES, False, wire, "direct")
    return outputs[0]


@pytest.mark.parametrize(("dtype", "wire"), [("float32", ""), ("float32", "bfloat16"), ("float64", "float16")])
@pytest.mark.parametrize(("nodes", "local", "parts"), CASES)
def test_parts_of_the_allreduce(nodes, local, parts, dtype, wire):
    hosts = hosts_of(nodes, local)
    inputs = [brought(rank, sum(LENGTHS), dtype) for rank in range(len(hosts))]
    whole = allreduced(hosts, inputs, dtype, AVERAGE, 0.5, wire)
    outputs, _ = reduce(hosts, inputs, dtype, LENGTHS, parts, op=AVERAGE, postscale=0.5, wire=wire)
    for rank, output in enumerate(outputs):
        expected = cut(whole, LENGTHS, parts, rank % parts)
        np.testing.assert_array_equal(output.view(np.uint8), expected.view(np.uint8), err_msg=f"rank {rank}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("nodes", "local", "parts"), [(2, 2, 4), (2, 2, 2), (1, 4, 2), (3, 2, 6)])
def test_halves(nodes, local, parts, dtype):
    test_parts_of_the_allreduce(nodes, local, parts, dtype, "")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("nodes", "local", "parts"), CASES)
def test_gather(nodes, local, parts, dtype):
    hosts = hosts_of(nodes, local)
    groups = [brought(group, sum(LENGTHS), dtype) for group in range(len(hosts) // parts)]  # each has its own
    pieces = [cut(groups[rank // parts], LENGTHS, parts, rank % parts) for rank in range(len(hosts))]
    outputs, _ = gather(hosts, pieces, dtype, LENGTHS, parts)
    for rank, output in enumerate(outputs):
        np.testing.assert_array_equal(output.view(np.uint8), groups[rank // parts].view(np.uint8))


@pytest.mark.parametrize("lengths", [[0], [1], [0, 0], [31, 1], [3000]])
def test_small_and_uneven(lengths):
    hosts = hosts_of(2, 2)
    for parts in (1, 2, 4):
        inputs = [brought(rank, sum(lengths), "float32") for rank in range(4)]
        whole = sum(array.astype(np.float64) for array in inputs)
        outputs, _ = reduce(hosts, inputs, "float32", lengths, parts)
        for rank, output in enumerate(outputs):
            np.testing.assert_allclose(output, cut(whole, lengths, parts, rank % parts), rtol=1e-5, atol=1e-6)
        again, _ = gather(hosts, outputs, "float32", lengths, parts)
        for array in again:
            np.testing.assert_allclose(array, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("nodes", "local", "parts"), [case for case in CASES if case[0] > 1])
def test_bytes_of_both_halves_are_those_of_an_allreduce(nodes, local, parts):
    """For every degree a node sends 2 (N - 1) / N of the data, of which a gather takes the more, the more nodes share
    the parts. In chunks so large that no algorithm is chosen that sends more to send fewer messages."""
    hosts, elements = hosts_of(nodes, local), 3 * 8 * 1024
    length, span = [elements], max(1, parts // local)
    inputs = [brought(rank, elements, "float32") for rank in range(len(hosts))]
    outputs, of_reduce = reduce(hosts, inputs, "float32", length, parts, chunk=1 << 16)
    _, of_gather = gather(hosts, outputs, "float32", length, parts, chunk=1 << 16)
    bytes_of = [sum(of_reduce[:local]), sum(of_gather[:local])]
    data = elements * 4
    expected_gather = (span - 1) / span * data
    slack = 0.05 * data
    assert bytes_of[1] == pytest.approx(expected_gather, abs=slack)
    assert sum(bytes_of) == pytest.approx(2 * (nodes - 1) / nodes * data, abs=slack)


def test_too_small_chunks():
    with pytest.raises(ValueError, match="SMDDP_CHUNK_BYTES must be 4224 or more. Received: 4096"):
        reduce(hosts_of(33, 1), [brought(rank, 8, "float32") for rank in range(33)], "float32", [8], 33)


def test_uneven_nodes():
    with pytest.raises(ValueError, match="the same number of ranks on every node"):
        reduce(["a", "a", "b"], [brought(rank, 8, "float32") for rank in range(3)], "float32", [8], 3)


@pytest.mark.parametrize("parts", [3, 12])
def test_parts_that_do_not_fit(parts):
    inputs = [brought(rank, 8, "float32") for rank in range(4)]
    with pytest.raises(ValueError, match=rf"Received: {parts} parts"):
        reduce(hosts_of(2, 2), inputs, "float32", [8], parts)

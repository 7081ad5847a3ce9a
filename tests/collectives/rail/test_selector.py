"""Which algorithm is chosen between nodes, and how large buckets are: pure functions."""

from __future__ import annotations

import itertools

import pytest

from tests import native_module

_core = native_module.core()

ALGORITHMS = [row["name"] for row in _core.algorithms()]
MIB = 1 << 20
FAST = {"latency_s": 5e-6, "message_s": 1e-6, "bytes_per_s": 10e9}
SLOW = {"latency_s": 300e-6, "message_s": 5e-6, "bytes_per_s": 12.5e6}


def chosen(members: int, size: int, link: dict[str, float], dtype: str = "float32", rails: int = 1) -> str:
    return _core.rail_choose(members, rails, size, dtype, **link)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_prediction_is_the_sum_of_its_three_parts(algorithm: str) -> None:
    for members, size in itertools.product((2, 3, 8, 64), (4, MIB)):
        steps, messages, traffic = _core.rail_cost(algorithm, members)
        seconds = _core.rail_predict(algorithm, members, size, latency_s=0.5, message_s=0.01, bytes_per_s=1000.0)
        assert seconds == pytest.approx(0.5 * steps + 0.01 * messages + traffic * size / 1000.0)


@pytest.mark.parametrize("members", [2, 3, 4, 7, 9, 12])
def test_large_sums_take_the_direct_exchange_on_a_fast_network(members: int) -> None:
    """Of more than 8 members where they are no power of two: the doubling algorithms send more then."""
    assert chosen(members, 25 * MIB, FAST) == "direct"


@pytest.mark.parametrize("members", [8, 16, 64])
def test_many_flows_are_avoided_where_that_costs_no_bytes(members: int) -> None:
    assert chosen(members, 25 * MIB, FAST) == "halving_doubling"


def test_large_sums_of_a_few_nodes_go_round_on_a_slow_network() -> None:
    names = {(members, size): chosen(members, size, SLOW) for members in (2, 3, 16, 17) for size in (1024, 25 * MIB)}
    assert {key for key, name in names.items() if name == "ring"} == {(3, 25 * MIB), (16, 25 * MIB)}


def test_the_rails_of_a_node_share_its_link() -> None:
    """The same rail bandwidth is that of a slow node with one rail, and of a fast one with eight."""
    link = {**FAST, "bytes_per_s": 0.15e9}
    assert chosen(4, 25 * MIB, link, rails=1) == "ring"
    assert chosen(4, 25 * MIB, link, rails=8) == "direct"


@pytest.mark.parametrize(("members", "link"), [(2, FAST), (2, SLOW), (4, FAST)], ids=["2 fast", "2 slow", "4 fast"])
def test_small_sums_take_the_fewest_steps_and_messages(members: int, link: dict) -> None:
    assert chosen(members, 64, link) == "recursive_doubling"


def test_many_nodes_take_the_one_with_few_messages() -> None:
    """126 messages to 63 peers cost more than 12 messages of the same bytes in all."""
    assert chosen(64, MIB, {"latency_s": 2e-6, "message_s": 2e-6, "bytes_per_s": 10e9}) == "halving_doubling"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_chunks_cost_their_messages_and_wait_together(algorithm: str) -> None:
    """Eight are in flight at a time."""
    link = {"latency_s": 0.5, "message_s": 0.01, "bytes_per_s": 1000.0}
    steps, messages, traffic = _core.rail_cost(algorithm, 8)
    for chunks, waits in ((1, 1), (8, 1), (9, 2), (40, 5)):
        seconds = _core.rail_predict(algorithm, 8, chunks * 4096, **link, chunk_bytes=4096)
        parts = 0.5 * steps * waits + 0.01 * messages * chunks + traffic * chunks * 4.096
        assert seconds == pytest.approx(parts)


def test_many_nodes_take_the_one_with_few_messages_although_the_bucket_is_large() -> None:
    """What counts is the piece of a chunk that a message holds: 64 nodes of 8 ranks, 100 MiB in chunks of 2 MiB."""
    link = {"latency_s": 5e-6, "message_s": 1e-6, "bytes_per_s": 12.5e9 / 8}
    of_rail = 100 * MIB // 8
    for chunk_bytes, saves in ((0, False), (2 * MIB // 8, True)):
        direct, halving = (
            _core.rail_predict(algorithm, 64, of_rail, **link, chunk_bytes=chunk_bytes)
            for algorithm in ("direct", "halving_doubling")
        )
        assert (halving < 0.9 * direct) == saves


def test_chunks_grow_with_the_ranks() -> None:
    sizes = {pieces: _core.default_chunk_bytes(pieces) for pieces in (1, 8, 9, 64, 128, 4096)}
    assert sizes == {1: MIB // 4, 8: MIB // 4, 9: 9 * 32768, 64: 2 * MIB, 128: 4 * MIB, 4096: 4 * MIB}


@pytest.mark.parametrize(
    ("free", "chunk"),
    [(1 << 62, 4 * MIB), (1024 * MIB, 4 * MIB), (512 * MIB, 2 * MIB), (64 * MIB, MIB // 4), (0, MIB // 4)],
)
def test_chunks_fit_into_half_of_the_shared_memory(free: int, chunk: int) -> None:
    """Eight ranks on each of 64 nodes; a container has 64 MiB unless it is given more."""
    assert _core.chunk_bytes_within(free, 512, 8, 8) == chunk


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_keep_the_order_that_rounds_once(dtype: str) -> None:
    for members, size, link in itertools.product((2, 3, 4, 64), (2, MIB), (FAST, SLOW)):
        assert chosen(members, size, link, dtype) == "direct"


def test_on_a_fast_network_all_choices_give_the_same_bits() -> None:
    """Ring sums in another order; no noise in what was measured may bring it in."""
    for members, exponent, noise in itertools.product((2, 3, 5, 8, 64, 512), range(2, 30, 3), (0.5, 1, 2)):
        link = {key: noise * figure for key, figure in FAST.items()}
        assert chosen(members, 1 << exponent, link) != "ring"


def test_a_slight_advantage_does_not_count() -> None:
    """At 2 members both send as many bytes: recursive doubling saves one step of many."""
    assert chosen(2, MIB, {"latency_s": 1e-6, "message_s": 0, "bytes_per_s": 1e9}) == "direct"
    assert chosen(2, MIB, {"latency_s": 1e-2, "message_s": 0, "bytes_per_s": 1e9}) == "recursive_doubling"


def test_buckets_grow_with_the_nodes() -> None:
    sizes = {nodes: _core.default_bucket_bytes(nodes) for nodes in (1, 2, 8, 16, 32, 64, 1000)}
    assert sizes == {1: 25 * MIB, 2: 25 * MIB, 8: 25 * MIB, 16: 50 * MIB, 32: 100 * MIB, 64: 200 * MIB, 1000: 200 * MIB}


def test_plans_whose_layout_may_vary_never_go_round_by_themselves() -> None:
    assert _core.rail_choose(4, 1, 25 * MIB, "float32", **SLOW) == "ring"
    assert _core.rail_choose(4, 1, 25 * MIB, "float32", **SLOW, places_vary=True) == "direct"


@pytest.mark.parametrize(("nodes", "parts"), [(1, 4), (2, 16)])
def test_buckets_are_a_part_of_the_plan_within_bounds(nodes: int, parts: int) -> None:
    sizes = {mib: _core.bucket_bytes_for([mib * MIB // 8, mib * MIB // 8], "", nodes) for mib in (1, 80, 4000)}
    assert sizes == {1: 25 * MIB // 16, 80: 80 * MIB // parts, 4000: 25 * MIB}


def test_bucket_sizes_count_what_travels_and_the_nodes() -> None:
    assert _core.bucket_bytes_for([100 * MIB // 4], "bfloat16", 8) == 50 * MIB // 16
    assert _core.bucket_bytes_for([4000 * MIB // 4], "", 16) == 50 * MIB


@pytest.mark.parametrize(
    ("gbit", "wire"), [(0.2, "int8"), (2.9, "int8"), (3.1, "bfloat16"), (24, "bfloat16"), (26, "as given")]
)
def test_the_slower_the_link_the_narrower_what_is_sent(gbit: float, wire: str) -> None:
    assert _core.wire_for_rate(gbit * 1e9 / 8) == wire
    assert _core.wire_for_rate(float("inf")) == "as given"

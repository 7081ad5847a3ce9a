"""Who sits where: the pure function behind init(), with invented hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import native_module

pytestmark = pytest.mark.native

_core = native_module.core()

hosts_of_ranks = st.lists(st.sampled_from("abcd"), min_size=1, max_size=12)


def everybody(hosts: list[str]) -> list[dict]:
    return [_core.topology(rank, hosts) for rank in range(len(hosts))]


@pytest.mark.parametrize(
    ("hosts", "rank", "expected"),
    [
        (["a"], 0, {"local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1, "rail": [0], "uniform": True}),
        (["a", "a", "b", "b"], 3, {"local_rank": 1, "node_index": 1, "node": [2, 3], "rail": [1, 3], "rail_count": 2}),
        (["a", "b", "a", "b"], 2, {"local_rank": 1, "node_index": 0, "node": [0, 2], "rail": [2, 3], "uniform": True}),
        (["a", "a", "b"], 1, {"is_reducer": False, "rail": [], "rail_count": 1, "cross_size": 1, "uniform": False}),
        (["a", "a", "b"], 2, {"is_reducer": True, "rail": [0, 2], "cross_rank": 1, "cross_size": 2, "uniform": False}),
        (["b", "a", "c"], 1, {"local_size": 1, "node_count": 3, "rail": [0, 1, 2], "cross_rank": 1, "cross_size": 3}),
    ],
)
def test_known_arrangements(hosts: list[str], rank: int, expected: dict) -> None:
    topology = _core.topology(rank, hosts)
    assert {key: topology[key] for key in expected} == expected


@given(hosts_of_ranks)
def test_nodes_divide_the_world(hosts: list[str]) -> None:
    for rank, topology in enumerate(everybody(hosts)):
        assert (topology["rank"], topology["size"]) == (rank, len(hosts))
        assert sorted(member for node in topology["nodes"] for member in node) == list(range(len(hosts)))
        assert all(len({hosts[member] for member in node}) == 1 for node in topology["nodes"])
        assert topology["node_count"] == len(topology["nodes"]) == len(set(hosts))
        firsts = [node[0] for node in topology["nodes"]]
        assert firsts == sorted(firsts), "nodes are numbered by their first rank"


@given(hosts_of_ranks)
def test_place_on_the_node(hosts: list[str]) -> None:
    for rank, topology in enumerate(everybody(hosts)):
        node = topology["nodes"][topology["node_index"]]
        assert topology["node"] == node
        assert node[topology["local_rank"]] == rank
        assert topology["local_size"] == len(node)
        assert topology["uniform"] == (len({len(other) for other in topology["nodes"]}) == 1)


@given(hosts_of_ranks)
def test_rails_cross_every_node_once(hosts: list[str]) -> None:
    for rank, topology in enumerate(everybody(hosts)):
        nodes = topology["nodes"]
        assert topology["rail_count"] == min(len(node) for node in nodes)
        assert topology["is_reducer"] == (topology["local_rank"] < topology["rail_count"])
        expected = [node[topology["local_rank"]] for node in nodes] if topology["is_reducer"] else []
        assert topology["rail"] == expected
        with_my_local_rank = [node[topology["local_rank"]] for node in nodes if topology["local_rank"] < len(node)]
        assert topology["cross_size"] == len(with_my_local_rank)
        assert with_my_local_rank[topology["cross_rank"]] == rank


@given(hosts_of_ranks)
def test_all_ranks_see_the_same(hosts: list[str]) -> None:
    common = ("size", "nodes", "node_count", "rail_count", "uniform")
    seen = [[topology[key] for key in common] for topology in everybody(hosts)]
    assert all(view == seen[0] for view in seen)


@pytest.mark.parametrize(("rank", "hosts"), [(0, []), (2, ["a", "b"]), (-1, ["a"])])
def test_rank_outside_the_world(rank: int, hosts: list[str]) -> None:
    with pytest.raises(ValueError, match="Expected a rank from 0 to"):
        _core.topology(rank, hosts)

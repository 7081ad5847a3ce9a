"""Which rank holds what of an embedding table: every element once, and no rank much more than its share."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf.keras.layers.placement import Layout, described, with_placements

CUT = ("row_wise", "column_wise", "table_wise")


@pytest.mark.parametrize("placement", [*CUT, "default_device"])
@pytest.mark.parametrize(("rows", "columns"), [(7, 5), (2, 8), (9, 2), (1, 1)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_element_is_held_once(placement: str, rows: int, columns: int, ranks: int) -> None:
    layout = Layout(rows, columns, placement, ranks, owner=ranks - 1)
    table = np.arange(rows * columns).reshape(rows, columns)
    parts = [table[layout.part(rank)] for rank in range(ranks)]
    assert [part.shape for part in parts] == [layout.shape(rank) for rank in range(ranks)]
    assert all(min(layout.held(rank)) >= 1 for rank in range(ranks))
    if not layout.is_sharded:
        assert all((part == table).all() for part in parts)
    else:
        assert sorted(np.concatenate([part.ravel() for part in parts])) == table.ravel().tolist()


def test_a_row_is_where_the_exchange_looks_for_it() -> None:
    layout = Layout(11, 2, "row_wise", 3)
    table = np.arange(22).reshape(11, 2)
    for row in range(11):
        assert (table[layout.part(row % 3)][row // 3] == table[row]).all()


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_auto_gives_each_rank_its_share(ranks: int) -> None:
    random = np.random.default_rng(ranks)
    rows = [int(10 ** random.uniform(2, 6)) for _ in range(26)]
    layouts = with_placements([Layout(each, 16, "auto", ranks) for each in rows])
    assert {layout.placement for layout in layouts} >= {"default_device", "row_wise"}
    held = [sum(np.prod(layout.shape(rank)) for layout in layouts if layout.is_sharded) for rank in range(ranks)]
    assert max(held) <= 1.25 * sum(held) / ranks
    assert with_placements([Layout(each, 16, "sparsecore", ranks) for each in rows]) == layouts


def test_what_was_asked_for_stays() -> None:
    wanted = [Layout(1000, 64, placement, 2) for placement in (*CUT, "default_device", "table_wise", "table_wise")]
    layouts = with_placements(wanted)
    assert [layout.placement for layout in layouts] == [each.placement for each in wanted]
    assert [layout.owner for layout in layouts if layout.placement == "table_wise"] == [0, 1, 0]


def test_one_rank_has_all() -> None:
    for layout in with_placements([Layout(10**6, 64, placement, 1) for placement in ("auto", *CUT)]):
        assert not layout.is_sharded
        assert layout.shape(0) == (10**6, 64)


def test_the_bytes_of_each_rank_are_shown() -> None:
    layouts = [Layout(1001, 4, "row_wise", 2), Layout(3, 4, "default_device", 2)]
    assert described(["users", "days"], layouts).splitlines() == [
        "table  rows x columns  placement       rank 0  rank 1",
        "users  1001 x 4        row_wise        8,016   8,000",
        "days   3 x 4           default_device  48      48",
        "bytes                                  8,064   8,048",
    ]

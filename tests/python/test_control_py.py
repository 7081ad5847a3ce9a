"""`_core`'s functions of the session's life, plans and process sets: arguments, results and errors."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf._native import loader
from tests import native_module
from tests.reasons import BEFORE_INIT

pytestmark = pytest.mark.ranks("2", "2+1")

core = loader.core


def plan(key: str, shapes=((5,),), dtypes=("float32",), **more) -> int:
    what = {"op": 1, "prescale": 1.0, "postscale": 1.0, "wire_dtype": "", **more}
    return core().register_plan(key, list(dtypes), [list(shape) for shape in shapes], **what)


def test_numbers_are_those_of_the_session(hvd, rank, size, mpi):
    assert (core().rank(), core().size()) == (mpi.Get_rank(), mpi.Get_size())
    assert 0 <= core().local_rank() < core().local_size() <= size
    assert 0 <= core().cross_rank() < core().cross_size() <= size
    assert core().is_homogeneous() == (len(set(mpi.allgather(core().local_size()))) == 1)
    assert core().is_initialized()
    assert core().mpi_initialized()
    assert core().process_sets()[0] == list(range(size))


def test_without_a_session_all_that_need_one_say_so(restartable):
    restartable.shutdown()
    assert not core().is_initialized()
    assert core().session_failure() is None
    assert core().raised_elsewhere() == ""
    assert not core().others_acknowledged()
    calls = (
        core().rank,
        core().stats,
        core().process_sets,
        core().stop_timeline,
        lambda: plan("early"),
        lambda: core().places_in_parts(0, 1),
        lambda: core().remove_process_set(1),
        lambda: core().add_process_sets([([0], 0)], at_start=False),
    )
    for call in calls:
        with pytest.raises(ValueError, match=BEFORE_INIT):
            call()


def test_equal_plans_have_one_number(hvd):
    first = plan("plan")
    assert plan("plan") == first
    others = [
        plan("another"),
        plan("plan", shapes=[(6,)]),
        plan("plan", dtypes=["float64"]),
        plan("plan", prescale=0.5),
        plan("plan", wire_dtype="bfloat16"),
        plan("plan", notes=["a note"]),
    ]
    assert len({first, *others}) == 7
    assert plan("plan", names=["only for messages"]) == first


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"shapes": [(5,), (6,)]}, "As many dtypes as shapes are needed"),
        ({"dtypes": ["float33"]}, "float33"),
        ({"wire_dtype": "int4"}, "int4"),
    ],
)
def test_plans_that_cannot_be(hvd, arguments, words):
    with pytest.raises(ValueError, match=words):
        plan("wrong", **arguments)


def test_places_in_parts(hvd, rank, size):
    """Ranks of uneven nodes cannot share."""
    if not core().is_homogeneous():
        with pytest.raises(ValueError, match=f"same number of ranks on every node. Received: {size} ranks on 2 nodes"):
            core().places_in_parts(0, size)
        return
    assert sorted(core().places_in_parts(0, size)) == list(range(size))
    assert core().places_in_parts(0, 1) == [0] * size
    with pytest.raises(ValueError, match=str(size + 5)):
        core().places_in_parts(0, size + 5)


def test_counters_count(hvd, rank):
    before = core().stats()
    for number in range(3):
        native_module.core().broadcast(
            [np.full(9000, rank, "float32")], dtype="float32", root=0, name=f"counted.{number}"
        )
    after = core().stats()
    assert after["named_requests"] == before["named_requests"] + 3
    assert set(after) == set(before)
    assert after["ended_rank"] == -1
    moved = [after[name] - before[name] for name in ("node_bytes_sent", "node_bytes_referred", "rail_bytes_sent")]
    assert (rank == 0) <= (max(moved) >= 3 * 36_000)


def test_process_sets(dynamic, rank, size):
    numbers = core().add_process_sets([([size - 1], 0), ([0], 0)], at_start=False)
    assert [core().process_sets()[number] for number in numbers] == [[size - 1], [0]]
    if rank == 0:
        assert core().stats(numbers[1])["named_requests"] == 0
        with pytest.raises(ValueError, match="Rank 0 is not a member"):
            core().stats(numbers[0])
    for number in numbers:
        assert core().remove_process_set(number)
        assert not core().remove_process_set(number)
    assert not core().remove_process_set(0)
    assert list(core().process_sets()) == [0]


def test_switches_are_read_when_asked_for(hvd, monkeypatch):
    for value, expected in (("1", True), ("false", False), ("true", True), ("0", False)):
        monkeypatch.setenv("SMDDP_DATA_AUTOTUNE", value)
        assert core().switch("SMDDP_DATA_AUTOTUNE") is expected
    monkeypatch.setenv("SMDDP_DATA_AUTOTUNE", "perhaps")
    with pytest.raises(ValueError, match="SMDDP_DATA_AUTOTUNE.*perhaps"):
        core().switch("SMDDP_DATA_AUTOTUNE")

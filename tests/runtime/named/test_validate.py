"""What ranks see when they disagree, or when one of them leaves: the named error, on every rank, soon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reasons import BEFORE_INIT
from tests.support.mpirun import Finished, launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2
SOON_SECONDS = 60.0  # without an error it would wait until the job is ended
Records = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def disagreements(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """One launch for all cases: a disagreement does not end the session, so the next case can follow."""
    folder = tmp_path_factory.mktemp("disagree")
    launch([Path(__file__).with_name("disagree.py"), folder], RANKS, timeout=240).check()
    return read_records(folder, RANKS)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("dtype", "Mismatched data types"),
        ("shape", "Mismatched allreduce tensor shapes"),
        ("rank of the shape", "Mismatched allreduce tensor shapes"),
        ("op", "Mismatched reduction operation"),
        ("prescale", "Mismatched prescale"),
        ("compression", "Mismatched wire dtype"),
        ("collective", "Mismatched operations"),
        ("root", "Mismatched broadcast root ranks"),
        ("unknown root", "root"),
        ("negative root", "root"),
        ("broadcast shape", "Mismatched broadcast tensor shapes"),
        ("allgather row", "Mismatched allgather tensor shapes"),
        ("group length", "Mismatched number of tensors"),
        ("second model", "Mismatched"),
        ("second model in a graph", "Mismatched gradient plans"),
    ],
)
def test_disagreement_is_named_on_every_rank(disagreements: Records, case: str, words: str) -> None:
    for rank in range(RANKS):
        record = disagreements[rank][case]
        assert record["error"] in ("FailedPreconditionError", "InvalidArgumentError", "ValueError"), record
        assert words.lower() in record["message"].lower()
        assert record["seconds"] < SOON_SECONDS


@pytest.mark.parametrize("case", ["second model", "second model in a graph"])
def test_plans_first_difference_is_shown(disagreements: Records, case: str) -> None:
    for rank in range(RANKS):
        message = disagreements[rank][case]["message"]
        assert "[3, 2]" in message
        assert "[3, 4]" in message


@pytest.mark.parametrize("case", ["equal models", "afterwards", "a model afterwards"])
def test_session_goes_on_after_a_disagreement(disagreements: Records, case: str) -> None:
    assert [disagreements[rank][case]["error"] for rank in range(RANKS)] == [""] * RANKS


def _failed_by_itself(finished: Finished) -> bool:
    return finished.returncode != 0 and not finished.timed_out


def test_rank_that_exits_early(tmp_path: Path) -> None:
    finished = launch([Path(__file__).with_name("leave.py"), "exit", tmp_path], RANKS, timeout=90)
    assert _failed_by_itself(finished), finished.output
    alone = read_records(tmp_path, RANKS)[0]["alone"]
    assert alone["error"], "the allreduce of one rank alone must not succeed"
    assert "rank 1" in alone["message"].lower() or "shut down" in alone["message"].lower(), alone
    assert alone["seconds"] < SOON_SECONDS


def test_rank_that_raises(tmp_path: Path) -> None:
    finished = launch([Path(__file__).with_name("leave.py"), "raise", tmp_path], RANKS, timeout=90)
    assert _failed_by_itself(finished), finished.output
    assert "RuntimeError: rank 1 has a bug" in finished.output
    alone = read_records(tmp_path, RANKS)[0].get("alone")  # none when mpirun was quicker to end rank 0
    assert alone is None or (alone["error"] and alone["seconds"] < SOON_SECONDS), alone


@pytest.mark.one_process
def test_use_before_init(tmp_path: Path) -> None:
    launch([Path(__file__).with_name("before_init.py"), tmp_path], ranks=None, timeout=90).check()
    [records] = read_records(tmp_path, 1)
    for case, record in records.items():
        assert record["error"], f"{case} works before init"
        assert BEFORE_INIT in record["message"], (case, record)

"""Forks of a process with a session get a clear error; what else a rank starts is a job of one rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import Finished, launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2
MANNERS = ("exit", "raises", "multiprocessing")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    folder = tmp_path_factory.mktemp("forks")
    return folder, launch([Path(__file__).with_name("forks.py"), folder], RANKS, timeout=120)


def test_parents_go_on(job: tuple[Path, Finished]) -> None:
    output = job[1].check().output
    for rank in range(RANKS):
        assert f"rank {rank} has reduced after all" in output
    assert "has ended its session" not in output
    assert output.count("ValueError: of a fork") == RANKS
    assert output.count("not initialized") == RANKS * len(MANNERS)


@pytest.mark.parametrize("manner", MANNERS)
def test_forks_are_told(job: tuple[Path, Finished], manner: str) -> None:
    folder, _ = job
    for records in read_records(folder / manner, RANKS):
        for call in ("rank", "reduce", "init"):
            assert records[call]["message"].startswith("This process was forked from one that"), records
        assert records["shutdown"]["error"] == records["is_initialized"]["error"] == ""


def test_children_are_jobs_of_one_rank() -> None:
    """They import the script again, or are programs that call `hvd.init`, with the launcher's variables."""
    output = launch([Path(__file__).with_name("children.py")], RANKS, timeout=120).check().output
    for rank in range(RANKS):
        assert f"rank {rank} has worked with its children" in output
    assert "child of rank" not in output  # nothing is wrong about workers

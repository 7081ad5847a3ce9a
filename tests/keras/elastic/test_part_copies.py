"""Partitioned variables in jobs whose ranks come and go: the parts of lost ranks come from the memory of others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from smddp_tf.keras.elastic.part_copies import _keepers
from tests.run.launch.growing import Growing
from tests.support.mpirun import SCRIPTS

SCRIPT = SCRIPTS / "partitioned_ranks.py"
LONG = 0.4  # seconds of a batch, so that a rank that imports TensorFlow comes before the last one


@pytest.mark.parametrize(
    ("nodes", "keepers"),
    [
        ([0, 0], [1, 0]),
        ([0, 0, 0], [1, 2, 0]),
        ([0, 0, 2, 2], [2, 3, 0, 1]),
        ([0, 0, 2], [2, 2, 0]),
        ([0, 1, 1, 3], [1, 3, 0, 0]),
        ([0, 0, 2, 2, 4, 4, 6, 6], [2, 3, 4, 5, 6, 7, 0, 1]),
    ],
)
def test_who_keeps_whose_parts(nodes: list[int], keepers: list[int]) -> None:
    assert _keepers(nodes) == keepers


def check(job: Growing, *ranks: int) -> None:
    """It ends with so many ranks, and with weights and slots that differ from plain Keras's by rounding only."""
    *others, (_, size, difference, rounding) = sorted(job.ends(), key=len)
    assert len(others) + 1 == int(size), job.output()
    assert int(size) in ranks, job.output()
    assert 0 < float(difference) < 10 * float(rounding) + 2e-6, (difference, rounding, job.output())


def await_commit(job: Growing, process: int, after: int = 6) -> None:
    """Waits until the process has committed, some batches after its last session began."""
    least = job.begun()[process][-1][0] + after
    log = job.folder / f"log.{process}"
    job.await_that(lambda: any(int(line[7:]) >= least for line in log.read_text().splitlines() if line[:6] == "commit"))


@pytest.mark.launches
def test_ranks_come_and_go(tmp_path: Path) -> None:
    """One is lost, one comes, and rank 0 is lost: slots and tables move in place, and weights are as if nothing was."""
    with Growing(tmp_path, 3, 120, "--min-np", "1", program=(SCRIPT, "function"), seconds=LONG) as job:
        first, lost, third = (job.await_ranks(3)[rank] for rank in range(3))
        await_commit(job, first)
        os.kill(lost, signal.SIGKILL)
        assert job.await_ranks(2, apart_from=lost) == {0: first, 1: third}
        job.await_shown(2)
        await_commit(job, first)
        job.show(3)
        assert job.await_ranks(3)[1] == third
        await_commit(job, first)
        os.kill(first, signal.SIGKILL)
        assert job.await_ranks(2, apart_from=first)[0] == third
        check(job, 2)
        assert "starts again" not in job.output()
        assert min(batch for batch, *_ in job.begun()[third][1:]) > 0


@pytest.mark.launches
def test_one_rank_has_all_before_and_after(tmp_path: Path) -> None:
    """Slots and tables that are whole are divided, and put together again; `fit` traces its functions again."""
    with Growing(tmp_path, 1, 120, "--min-np", "1", program=(SCRIPT, "fit"), seconds=LONG) as job:
        first = job.await_ranks(1)[0]
        job.show(2)
        second = job.await_ranks(2)[1]
        await_commit(job, first)
        os.kill(first, signal.SIGKILL)
        assert job.await_ranks(1, apart_from=first) == {0: second}
        await_commit(job, second)
        check(job, 1)
        assert "starts again" not in job.output()


@pytest.mark.launches
def test_functions_that_outlive_ranks_are_an_error(tmp_path: Path) -> None:
    """Traced for other ranks, they would use the wrong parts. The job starts again, from its last commit."""
    with Growing(tmp_path, 3, 60, "--min-np", "1", program=(SCRIPT, "kept")) as job:
        lost = job.await_ranks(3)[1]
        job.await_that(lambda: "commit 6" in (tmp_path / f"log.{lost}").read_text())
        os.kill(lost, signal.SIGKILL)
        job.await_that(lambda: "starts again" in job.output())
        check(job, 3)
        assert "A function was traced for rank " in job.output()
        assert "Create the tf.function in the function given to hvd.elastic.run." in job.output()

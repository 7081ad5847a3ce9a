"""Ranks with parts of slots and tables are killed, in every phase of a commit and of a move: weights stay right."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.keras.elastic.test_part_copies import SCRIPT, await_commit, check
from tests.recovery.test_kills import KILLS, SEED
from tests.run.launch.growing import Growing
from tests.support.mpirun import SCRIPTS

DIES = SCRIPTS / "dies_in_a_commit.py"


@pytest.mark.parametrize(("phase", "goes_on_from"), [("before", 3), ("between", 3), ("after", 3), ("barrier", 6)])
def test_killed_during_a_commit(tmp_path: Path, phase: str, goes_on_from: int) -> None:
    """The commit after batch 6: the other ranks go on from it, or all from the one before."""
    with Growing(tmp_path, 3, 60, "--min-np", "1", program=(DIES, phase)) as job:
        job.await_that(lambda: (tmp_path / "died").exists())
        job.await_ranks(2)
        check(job, 2)
        assert "starts again" not in job.output()
        begun = {batch for each in job.begun().values() for batch, *_ in each[1:]}
        assert begun == {goes_on_from}


def test_killed_during_a_move(tmp_path: Path) -> None:
    """A second rank dies while parts of the first are given out. The two that remain have copies of both."""
    with Growing(tmp_path, 4, 60, "--min-np", "1", program=(DIES, "move")) as job:
        ranks = job.await_ranks(4)
        await_commit(job, ranks[1])
        os.kill(ranks[0], signal.SIGKILL)
        job.await_that(lambda: (tmp_path / "died").exists())
        job.await_ranks(2)
        check(job, 2)
        assert "starts again" not in job.output()


def test_parts_that_nobody_has_are_an_error(tmp_path: Path) -> None:
    """A rank is killed together with the one that keeps its parts: the job begins again with the commit on disk."""
    with Growing(tmp_path, 3, 60, "--min-np", "1", program=(SCRIPT, "function")) as job:
        ranks = job.await_ranks(3)
        await_commit(job, ranks[0])
        os.kill(ranks[0], signal.SIGSTOP)  # no session begins between the two
        for rank in (1, 2):
            os.kill(ranks[rank], signal.SIGKILL)
        os.kill(ranks[0], signal.SIGCONT)
        job.await_that(lambda: "starts again" in job.output())
        check(job, 3)
        assert (
            "were lost with the ranks that kept copies of them. Received: parts of the ranks [0, 2] only"
            in job.output()
        )


def test_random_kills(tmp_path: Path) -> None:
    chance, killed = random.Random(SEED + 3), 0
    flags = ("--min-np", "1", "--blacklist-cooldown-range", "1", "2")
    with Growing(tmp_path, 3, 150 * (KILLS // 5), *flags, program=(SCRIPT, "function")) as job:
        while killed < KILLS // 5:
            ranks = job.await_ranks(3)
            time.sleep(chance.random())
            with contextlib.suppress(ProcessLookupError):  # it was killed a moment ago
                os.kill(chance.choice(list(ranks.values())), signal.SIGKILL)
                killed += 1
        job.await_that(lambda: bool(job.ranks()))
        check(job, 1, 2, 3)
    print(f"{killed} ranks with parts killed, {job.output().count('goes on with')} rounds in place")

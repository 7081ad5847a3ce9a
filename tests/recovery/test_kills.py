"""Random ranks are killed, fifty times all told: nothing committed is lost, and the weights at the end are right.

`make test-recovery` (about 5 minutes). The script's sums are exact, so the weights must be those of an undisturbed run
to the last bit, however many ranks were left. SMDDP_TEST_SEED repeats a run's choices; SMDDP_TEST_KILLS changes 50.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smddp_tf.elastic.commits import CommitFolder
from tests.run.launch.growing import Growing
from tests.support.mpirun import ROOT, SCRIPTS, environment
from tests.support.scripts.elastic_ranks import COMMIT_EVERY

SCRIPT = SCRIPTS / "elastic_ranks.py"
SEED = int(os.environ.get("SMDDP_TEST_SEED", "0")) or random.randrange(1, 1 << 30)
KILLS = int(os.environ.get("SMDDP_TEST_KILLS", "50"))
IN_PLACE = KILLS // 2
BATCH_SECONDS = 0.02
PATIENCE = 180.0


class Job:
    """A job under attack; a context manager."""

    def __init__(self, folder: Path, words: list[str], batches: int) -> None:
        self.folder, self.batches, self.killed = folder, batches, 0
        self._output = open(folder / "output", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*words, sys.executable, str(SCRIPT), str(folder), str(batches), str(BATCH_SECONDS)],
            cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in [self.process.pid, *self.ranks()]:
            _kill(pid, signal.SIGKILL)
        self.process.wait()
        self._output.close()

    def ranks(self) -> list[int]:
        """The processes that train now."""
        return sorted(pid for path in self.folder.glob("rank.*") if _lives(pid := int(path.suffix[1:])))

    def kill(self, chance: random.Random, at_least: int, commit: int = 0) -> bool:
        """Kills one of the ranks when `at_least` train and that commit is there; False when the job has ended first."""
        give_up_at = time.monotonic() + PATIENCE
        while len(ranks := self.ranks()) < at_least or self.newest_commit() < commit:
            assert time.monotonic() < give_up_at, f"{ranks} train, of {at_least}\n{self.output()}"
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        time.sleep(chance.random() * 0.6)  # from the first batch on, or in the middle of the start after a kill
        _kill(chance.choice(ranks), signal.SIGKILL)
        self.killed += 1
        return True

    def newest_commit(self) -> int:
        return CommitFolder(self.folder / "commits").newest()

    def output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")[-6000:]

    def check(self, under_way: int = 0) -> None:
        """It has ended well, and no commit that any rank knew of was lost on the way.

        Args:
            under_way: batches of the newest commit that need not be kept. A rank knows of one when it is in memory;
                where the job starts again, it is safe when the next one begins.
        """
        assert self.process.wait(PATIENCE) == 0, self.output()
        ends = [line.split() for log in self.folder.glob("log.*") for line in log.read_text().splitlines()]
        assert {tuple(line[1:4:2]) for line in ends if line[0] == "end"} == {(str(self.batches), "equal")}
        stamped = sorted(line.split() for line in (self.folder / "order").read_text().splitlines())
        committed = 0
        for _, word, batch in stamped:
            if word == "begin":
                assert int(batch) >= committed - under_way, (
                    f"commit {committed} was lost (seed {SEED})\n{self.output()}"
                )
            committed = max(committed, int(batch)) if word == "commit" else committed


def _lives(pid: int) -> bool:
    try:
        return str(SCRIPT).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int, sign: int) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        pass


@pytest.fixture(autouse=True)
def show_seed() -> None:
    print(f"SMDDP_TEST_SEED={SEED}")


def test_killed_ranks_are_left_out(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    killed, jobs, ranks = 0, 0, 6
    while killed < IN_PLACE:
        jobs += 1
        folder = tmp_path / str(jobs)
        folder.mkdir()
        flags = ["--no-mpi", "--elastic", "--min-np", "1", "-np", str(ranks), "--commit-dir", str(folder / "commits")]
        with Job(folder, [sys.executable, "-m", "smddp_tf.run", *flags], 300) as job:
            for left in range(ranks, 1, -1):
                if killed + job.killed < IN_PLACE and not job.kill(chance, left):
                    break
            job.check()
            killed += job.killed
    print(f"{killed} ranks killed in {jobs} jobs of {ranks} ranks")


def test_killed_jobs_start_again(tmp_path: Path) -> None:
    chance = random.Random(SEED + 1)
    words = [sys.executable, "-m", "smddp_tf.run", "--elastic", "-np", "3", "--commit-dir", str(tmp_path / "commits")]
    newest = 0
    with Job(tmp_path, words, 24 * (KILLS - IN_PLACE) + 50) as job:
        while job.killed < KILLS - IN_PLACE:
            # Three starts in a row without a new commit would end it. One may still be under way at a kill.
            commit = newest + 2 if job.killed % 2 else 0
            assert job.kill(chance, 3, commit), f"the job has ended after {job.killed} kills\n{job.output()}"
            newest = job.newest_commit()
        job.check(under_way=COMMIT_EVERY)
    print(f"{job.killed} ranks killed in one job of 3 ranks")


def test_hosts_come_and_go(tmp_path: Path) -> None:
    """Slots appear and vanish meanwhile, and ranks are killed in any state: while they start, wait, or form a round."""
    chance, killed, changes = random.Random(SEED + 2), 0, 0
    flags = ("--min-np", "1", "--blacklist-cooldown-range", "1", "2")
    with Growing(tmp_path, 2, 120 * IN_PLACE, *flags) as job:
        while killed < IN_PLACE:
            time.sleep(chance.random())
            processes = [int(log.suffix[1:]) for log in tmp_path.glob("log.*")]
            live = [process for process in processes if _lives(process)]
            job.await_that(lambda: bool(job.ranks()))
            if len(live) > 1 and chance.random() < 0.6:
                spared = job.ranks()[min(job.ranks())]  # one that has the state
                _kill(chance.choice([process for process in live if process != spared]), signal.SIGKILL)
                killed += 1
            else:
                job.show(chance.randint(1, 4))
                changes += 1
        job.await_that(lambda: bool(job.ranks()))
        (tmp_path / "hurry").touch()
        assert job.process.wait(PATIENCE) == 0, job.output()
        assert "starts again" not in job.output()
        ends = [line for log in tmp_path.glob("log.*") for line in log.read_text().splitlines() if line[:4] == "end "]
        assert ends, job.output()
        assert {line.split()[3] for line in ends} == {"equal"}, job.output()
    print(f"{killed} ranks killed, slots changed {changes} times, {job.output().count('goes on with')} rounds")

"""When an elastic job starts again, with whom, and when it is given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.run.hosts.hosts import Host, NotStarted
from smddp_tf.run.launch import restarts
from smddp_tf.run.launch.job import Outcome
from smddp_tf.run.launch.restarts import Policy, run_elastic
from smddp_tf.run.launch.settings import Growth, Settings


class Starts:
    """Plays the launcher: each start ends as the list says; a number adds so many commits first."""

    def __init__(self, folder: Path, *endings: tuple[int, Outcome | Exception]) -> None:
        self.folder, self.endings, self.seen, self.commits = folder, list(endings), [], 0
        self.said: list[str] = []

    def __call__(self, settings: Settings) -> Outcome:
        self.seen.append(settings)
        commits, ending = self.endings.pop(0)
        folder = Path(settings.variables["SMDDP_COMMIT_DIR"])
        for _ in range(commits):
            folder.mkdir(exist_ok=True)
            self.commits += 1
            (folder / f"commit-{self.commits:012d}").touch()
        if isinstance(ending, Exception):
            raise ending
        return ending

    def run(self, policy: Policy, settings: Settings | None = None) -> Outcome:
        settings = settings or Settings(4, (Host("a", 2), Host("b", 2)))
        return run_elastic(settings, policy, self, self.said.append)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(restarts, "_PAUSE_SECONDS", 0)
    monkeypatch.chdir(tmp_path)


KILLED = Outcome(code=137, failed_rank=1)


def test_it_starts_again_until_it_has_succeeded(tmp_path: Path) -> None:
    starts = Starts(tmp_path, (1, KILLED), (0, KILLED), (0, KILLED), (2, KILLED), (0, Outcome()))
    assert starts.run(Policy(Growth(4), str(tmp_path / "kept"))).code == 0
    assert [settings.ranks for settings in starts.seen] == [4] * 5
    assert starts.said[3] == f"starts again with 4 ranks, from commit 3 in {tmp_path}/kept"
    assert (tmp_path / "kept").exists()


def test_a_folder_of_its_own_goes_when_the_job_has_succeeded(tmp_path: Path) -> None:
    assert Starts(tmp_path, (2, KILLED), (1, Outcome())).run(Policy(Growth(4))).code == 0
    assert list(tmp_path.iterdir()) == []
    failed = Starts(tmp_path, (2, Outcome(code=3)))
    assert failed.run(Policy(Growth(4), limit=0)).code == 3
    [kept] = tmp_path.iterdir()
    assert f"--commit-dir {kept}" in failed.said[-1]


def test_it_is_given_up_when_no_start_brings_a_commit(tmp_path: Path) -> None:
    starts = Starts(tmp_path, (1, KILLED), *[(0, Outcome(code=7))] * 9)
    assert starts.run(Policy(Growth(4))).code == 7
    assert len(starts.seen) == 4
    assert "3 starts in a row have not brought it to a new commit" in starts.said[-1]


def test_limit_of_starts(tmp_path: Path) -> None:
    starts = Starts(tmp_path, *[(1, KILLED)] * 9)
    assert starts.run(Policy(Growth(4), limit=2)).code == 137
    assert len(starts.seen) == 3


def test_a_signal_to_the_launcher_ends_it(tmp_path: Path) -> None:
    starts = Starts(tmp_path, (1, Outcome(code=143, interrupted=True)))
    assert starts.run(Policy(Growth(1))).code == 143
    assert len(starts.seen) == 1


@pytest.mark.parametrize("how", ["in the middle", "while it started again"])
def test_lost_hosts_are_left_out(tmp_path: Path, how: str) -> None:
    silent = [(1, Outcome(code=1, failed_rank=0, lost_hosts=frozenset({"b"})))]
    if how == "while it started again":
        silent = [(1, KILLED), (0, NotStarted("2 of 4 ranks had not started", ("b",)))]
    starts = Starts(tmp_path, *silent, (0, Outcome()))
    assert starts.run(Policy(Growth(2), str(tmp_path / "kept"))).code == 0
    assert (starts.seen[-1].ranks, starts.seen[-1].hosts) == (2, (Host("a", 2),))
    assert "with 2 ranks, without b" in starts.said[-1]
    few = Starts(tmp_path, *silent, (0, Outcome()))
    assert few.run(Policy(Growth(3), str(tmp_path / "kept"))).code == 1
    assert "the hosts that are left have 2 slots, --min-np asks for 3" in few.said[-1]


def test_a_job_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotStarted):
        Starts(tmp_path, (0, NotStarted("2 of 4 ranks had not started", ("b",)))).run(Policy(Growth(2)))

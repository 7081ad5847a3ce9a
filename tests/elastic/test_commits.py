"""Commits on disk: whole or not there, the newest whole one wins, nothing goes through links."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from smddp_tf.elastic import ObjectState, commits
from smddp_tf.elastic.commits import CommitFolder


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.endswith("lock"))


def test_newest_is_read_and_old_ones_go(tmp_path: Path) -> None:
    folder = CommitFolder(tmp_path / "new" / "commits", keep=2)
    assert (folder.newest(), folder.read()) == (0, (0, None))
    for number in range(1, 5):
        assert folder.write({"batch": number, "rows": np.arange(number)}) == number
    assert names(tmp_path / "new" / "commits") == ["commit-000000000003", "commit-000000000004"]
    number, content = CommitFolder(folder.path).read()
    assert (number, content["batch"], content["rows"].tolist()) == (4, 4, [0, 1, 2, 3])
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (folder.path, f"{folder.path}/commit-000000000004")]
    assert modes == [0o700, 0o600]


def test_prefixes_are_told_apart(tmp_path: Path) -> None:
    assert CommitFolder(tmp_path / "none").prefixes() == []
    plain, other = CommitFolder(tmp_path, keep=1), CommitFolder(tmp_path, keep=1, prefix="fold-1.")
    assert [folder.write(f"{folder.prefix}{i}") for i in range(2) for folder in (plain, other)] == [1, 1, 2, 2]
    assert names(tmp_path) == ["commit-000000000002", "fold-1.commit-000000000002"]
    assert plain.prefixes() == ["", "fold-1."]
    assert (plain.read(), other.read()) == ((2, "1"), (2, "fold-1.1"))
    plain.clear()
    assert (plain.newest(), other.newest()) == (0, 2)


@pytest.mark.parametrize("damage", ["cut short", "one byte", "empty"])
def test_damaged_commit_is_passed_over(tmp_path: Path, capsys, damage: str) -> None:
    folder = CommitFolder(tmp_path)
    folder.write("first")
    folder.write("second")
    newest = tmp_path / "commit-000000000002"
    content = newest.read_bytes()
    flipped = content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]
    newest.write_bytes({"cut short": content[:-1], "one byte": flipped, "empty": b""}[damage])
    assert folder.read() == (1, "first")
    assert "commit-000000000002 is damaged" in capsys.readouterr().err
    assert folder.write("third") == 3  # a number is never used twice
    assert folder.read() == (3, "third")


def test_process_killed_while_writing_leaves_the_commit_before(tmp_path: Path, monkeypatch) -> None:
    folder = CommitFolder(tmp_path)
    folder.write("first")
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "rename", lambda *_, **__: os._exit(9))
        folder.write("second")
    os.waitpid(child, 0)
    assert len(names(tmp_path)) == 2  # the unfinished one
    assert folder.read() == (1, "first")
    assert folder.write("second") == 2
    assert names(tmp_path) == ["commit-000000000001", "commit-000000000002"]


def test_failed_write_leaves_the_commit_before(tmp_path: Path, monkeypatch) -> None:
    folder = CommitFolder(tmp_path)
    folder.write("first")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            folder.write("second")
    assert names(tmp_path) == ["commit-000000000001"]
    assert folder.read() == (1, "first")


def test_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    real = tmp_path / "real"
    CommitFolder(real).write("first")
    (real / ".commit-unfinished").symlink_to(victim)
    CommitFolder(real).write("second")
    assert victim.read_text() == "mine"
    (tmp_path / "link").symlink_to(real)
    with pytest.raises(OSError, match="link"):
        CommitFolder(tmp_path / "link").write("third")
    (real / "commit-000000000007").symlink_to(real / "commit-000000000002")
    with pytest.raises(OSError, match="commit-000000000007"):
        CommitFolder(real).read()


def test_commit_that_others_may_write_is_refused(tmp_path: Path) -> None:
    CommitFolder(tmp_path).write("first")
    (tmp_path / "commit-000000000001").chmod(0o620)
    with pytest.raises(PermissionError, match="nobody else may write"):
        CommitFolder(tmp_path).read()


def state_of_rank_0(**kwargs) -> ObjectState:
    return ObjectState(bcast_object=lambda obj: obj, get_rank=lambda: 0, **kwargs)


def test_state_goes_on_from_the_disk(tmp_path: Path) -> None:
    state = state_of_rank_0(batch=0, weights=[0.0])
    state.commit_to(tmp_path)
    state.batch, state.weights = 5, [1.5]
    state.commit()
    state.finish_commit()
    state.batch = 6  # not committed

    later = state_of_rank_0(batch=0, weights=[0.0], new="kept")
    later.commit_to(tmp_path)
    later.resume()
    assert (later.batch, later.weights, later.new) == (5, [1.5], "kept")
    state.batch = 9
    state.commit()
    later.resume()  # once in a process: what it has in memory is newer
    assert later.batch == 5


def test_state_names_what_went_wrong(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    state = state_of_rank_0(batch=0)
    state.commit_to(tmp_path / "file")
    state.commit()
    with pytest.raises(OSError, match="Rank 0 could not write a commit to .*file: FileExistsError"):
        state.finish_commit()
    state.finish_commit()  # it was told
    state.batch = threading.Lock()
    with pytest.raises(OSError, match="Rank 0 could not write a commit to .*file: TypeError: cannot pickle"):
        state.commit()


def test_a_commit_is_written_while_training_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the state was when it was committed. The next one is begun when it is in the folder."""
    may_store, store = threading.Event(), CommitFolder._store
    monkeypatch.setattr(CommitFolder, "_store", lambda *args: may_store.wait(60) and store(*args))
    state = state_of_rank_0(batch=1, rows=[10])
    state.commit_to(tmp_path)
    state.commit()
    state.batch = 2
    state.rows.append(20)
    assert names(tmp_path) == []
    timer = threading.Timer(0.2, may_store.set)
    timer.start()
    state.commit()
    assert may_store.is_set()
    assert CommitFolder(tmp_path).newest() >= 1
    state.finish_commit()
    (tmp_path / "commit-000000000002").unlink()
    assert CommitFolder(tmp_path).read() == (1, {"batch": 1, "rows": [10]})


def test_an_interpreter_ends_when_its_commit_is_written(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom smddp_tf.elastic import ObjectState, commits\n"
        "store = commits.CommitFolder._store\n"
        "commits.CommitFolder._store = lambda *args: time.sleep(0.5) or store(*args)\n"
        "state = ObjectState(lambda obj: obj, lambda: 0, batch=7)\nstate.commit_to(sys.argv[1])\nstate.commit()\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, timeout=60)
    assert CommitFolder(tmp_path).read() == (1, {"batch": 7})


def test_folder_must_be_the_same_everywhere(tmp_path: Path) -> None:
    CommitFolder(tmp_path).write("seen here")
    state = ObjectState(bcast_object=lambda obj: (0, "", False), get_rank=lambda: 1, batch=0)
    state.commit_to(tmp_path)
    with pytest.raises(OSError, match="Rank 0 sees commits up to 0 in .*, rank 1 up to 1"):
        state.resume()


HOLDER = """
import sys
from smddp_tf.elastic.commits import CommitFolder
CommitFolder(sys.argv[1], prefix="a-").write("theirs")
print("holds", flush=True)
sys.stdin.read()
"""


def test_two_jobs_do_not_write_to_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_LOCK_SECONDS", 0.2)
    env = {**os.environ, "SMDDP_RUN_JOB": "job-17"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"holds\n"
        with pytest.raises(OSError, match=rf"in use: process {other.pid} on .*, job job-17 .* --commit-dir"):
            CommitFolder(tmp_path, prefix="a-").write("ours")
        assert names(tmp_path) == ["a-commit-000000000001"]
        assert CommitFolder(tmp_path, prefix="b-").write("ours") == 1
        monkeypatch.setenv("SMDDP_RUN_JOB", "job-17")  # the next start of that job
        assert CommitFolder(tmp_path, prefix="a-").write("theirs again") == 2
        other.communicate()
        assert CommitFolder(tmp_path, prefix="a-").write("and again, with the lock") == 3
    monkeypatch.delenv("SMDDP_RUN_JOB")
    monkeypatch.setattr(commits, "_held", {})
    assert CommitFolder(tmp_path, prefix="a-").write("ours, as the other job has ended") == 4


def test_locks_are_removed(tmp_path: Path) -> None:
    """At the end of the process, and when commits are cleared; others may write then."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"holds\n"
        assert (tmp_path / ".a-lock").exists()
        other.communicate()
    folder = CommitFolder(tmp_path, prefix="a-")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-commit-000000000001"]
    assert folder.write("ours") == 2
    folder.clear()
    assert list(tmp_path.iterdir()) == []
    assert folder.write("again") == 1
    folder.clear()


def test_a_fork_removes_no_lock(tmp_path: Path) -> None:
    folder = CommitFolder(tmp_path)
    folder.write("ours")
    forked = os.fork()
    if not forked:
        commits._release_all()
        os._exit(0)
    os.waitpid(forked, 0)
    assert (tmp_path / ".lock").exists()
    folder.release()


CONTENDER = """
import os, sys
from smddp_tf.elastic import commits
folder, inside = commits.CommitFolder(sys.argv[1]), os.path.join(sys.argv[1], "inside")
commits._LOCK_SECONDS = 60
for _ in range(40):
    folder.hold()
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails where another process holds the folder as well
    os.unlink(inside)
    folder.release()
"""


def test_one_process_holds_a_folder_while_locks_are_removed(tmp_path: Path) -> None:
    contenders = [subprocess.Popen([sys.executable, "-c", CONTENDER, tmp_path]) for _ in range(4)]
    assert [process.wait(120) for process in contenders] == [0] * 4
    assert list(tmp_path.iterdir()) == []


def test_two_states_do_not_write_to_one_folder(tmp_path: Path) -> None:
    """As two jobs do where there are no locks, such as in an object store."""
    first, second = CommitFolder(tmp_path), CommitFolder(tmp_path)
    assert (first.write("1"), first.write("2"), second.write("3")) == (1, 2, 3)
    with pytest.raises(OSError, match="Another job, .*: 3 is there, this one has written 2 last"):
        first.write("4")
    assert second.write("4") == 4

"""Commits in an object store: whole or not there, the newest whole one wins, and what happens without a store."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smddp_tf import urls
from smddp_tf.elastic import ObjectState
from smddp_tf.elastic.commits import commits_in
from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.restarts import _newest
from smddp_tf.run.launch.settings import commits_at
from tests.object_store import BUCKET, object_store, variables, why_none

pytestmark = pytest.mark.skipif(bool(why_none()), reason=why_none())

ROOT = Path(__file__).resolve().parents[2]
# Commits a small thing, then one that is uploaded in several parts.
WRITER = """
import sys, numpy as np
from smddp_tf.elastic.commits import commits_in
commits = commits_in(sys.argv[1])
commits.write("first")
commits.write(np.ones(101 << 20, np.uint8))
"""


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A client of a server, to which s3:// leads in this process."""
    import boto3

    with object_store() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in variables(url).items():
            patch.setenv(name, value)
        yield boto3.client("s3")


def keys(store: Any, folder: str) -> list[str]:
    found = store.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/").get("Contents", [])
    return [each["Key"].split("/", 1)[1] for each in found]


def test_newest_is_read_and_old_ones_go(store: Any) -> None:
    folder = commits_in(f"s3://{BUCKET}/many/", keep=2)
    assert (folder.newest(), folder.read(), folder.prefixes()) == (0, (0, None), [])
    for number in range(1, 5):
        assert folder.write({"batch": number, "rows": np.arange(number)}) == number
    commits_in(folder.path, prefix="fold-1.").write("other")
    assert keys(store, "many") == ["commit-000000000003", "commit-000000000004", "fold-1.commit-000000000001"]
    number, content = commits_in(folder.path).read()
    assert (number, content["batch"], content["rows"].tolist()) == (4, 4, [0, 1, 2, 3])
    assert folder.prefixes() == ["", "fold-1."]
    assert _newest(folder.path) == 4
    folder.clear()
    assert keys(store, "many") == ["fold-1.commit-000000000001"]


def test_what_another_process_has_written_is_seen(store: Any) -> None:
    """fsspec keeps listings."""
    folder = commits_in(f"s3://{BUCKET}/seen")
    folder.write("first")
    assert folder.newest() == 1
    whole = store.get_object(Bucket=BUCKET, Key="seen/commit-000000000001")["Body"].read()
    store.put_object(Bucket=BUCKET, Key="seen/commit-000000000002", Body=whole)
    assert folder.read() == (2, "first")


def test_what_is_not_whole_is_not_read(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = commits_in(f"s3://{BUCKET}/damaged")
    folder.write("first")
    folder.write("second")
    whole = store.get_object(Bucket=BUCKET, Key="damaged/commit-000000000002")["Body"].read()
    store.put_object(Bucket=BUCKET, Key="damaged/commit-000000000002", Body=whole[:-3])
    assert folder.read() == (1, "first")
    assert "damaged/commit-000000000002 is damaged; the one before is used" in capsys.readouterr().err
    assert folder.write("third") == 3
    assert folder.read() == (3, "third")


def test_a_process_that_is_killed_in_an_upload_leaves_no_commit(store: Any) -> None:
    url = f"s3://{BUCKET}/killed"
    with subprocess.Popen([sys.executable, "-c", WRITER, url], cwd=ROOT) as writer:
        give_up_at = time.monotonic() + 60
        while not store.list_multipart_uploads(Bucket=BUCKET).get("Uploads"):
            assert writer.poll() is None
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        writer.kill()
    assert keys(store, "killed") == ["commit-000000000001"]
    assert commits_in(url).read() == (1, "first")


def test_a_state_goes_on_from_the_store(store: Any) -> None:
    def state() -> ObjectState:
        made = ObjectState(bcast_object=lambda obj: obj, get_rank=lambda: 0, batch=0, weights=[0.0])
        made.commit_to(f"s3://{BUCKET}/state")
        return made

    first, second = state(), state()
    first.batch, first.weights = 5, [1.5]
    first.commit()
    first.finish_commit()
    second.resume()
    assert (second.batch, second.weights) == (5, [1.5])


def test_errors_name_the_url(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state = ObjectState(bcast_object=lambda obj: obj, get_rank=lambda: 0, batch=0)
    state.commit_to("s3://no-such-bucket/job")
    state.commit()
    with pytest.raises(OSError, match="Rank 0 could not write a commit to s3://no-such-bucket/job.*does not exist"):
        state.commit()
    for wrong in ("nowhere://bucket/job", "s4://bucket/job"):
        with pytest.raises(ValueError, match=f"Received: '{wrong}'.*Protocol not known"):
            commits_in(wrong)
        with pytest.raises(LaunchError, match="--commit-dir: Expected a path or a URL"):
            commits_at(wrong)
    from fsspec.registry import known_implementations

    monkeypatch.setitem(known_implementations, "absent", {"class": "no_such_module.Files", "err": "no module for it"})
    with pytest.raises(ImportError, match=r"its driver for absent://, which are not installed \(no module for it\)"):
        commits_in("absent://bucket/job")
    monkeypatch.setitem(sys.modules, "fsspec", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"needs fsspec.*pip install 'smddp-tf\[remote\]'"):
        commits_in(f"s3://{BUCKET}/job")


def test_paths_of_this_machine_stay_paths(tmp_path: Path) -> None:
    assert urls.absolute(f"file://{tmp_path}/x/") == f"{tmp_path}/x"
    assert urls.absolute("x/../y") == str(Path.cwd() / "y")
    assert urls.absolute("s3://bucket/x/") == commits_at("s3://bucket/x/") == "s3://bucket/x"
    assert commits_at(None) == ""
    assert commits_in(f"file://{tmp_path}").write("here") == 1
    assert (tmp_path / "commit-000000000001").exists()


def test_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("smddp_tf-abcdefgh", "smddp_tf-new_____", "smddp_tf-of-the-user"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.keras").touch()
    for name in ("smddp_tf-abcdefgh", "smddp_tf-of-the-user"):
        os.utime(tmp_path / name, (0, 0))
    with urls.temporary_folder() as first:
        os.utime(first, (0, 0))
        with urls.temporary_folder() as second:  # the first one is old, and in use
            found = sorted(path.name for path in tmp_path.iterdir())
    assert found == sorted(["smddp_tf-new_____", "smddp_tf-of-the-user", Path(first).name, Path(second).name])
    assert len(list(tmp_path.iterdir())) == 2


def test_a_commit_has_no_name_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is left of a process that is killed while it uploads or reads."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    for name in ("upload", "download"):
        call = getattr(urls, name)
        monkeypatch.setattr(urls, name, lambda *a, call=call: (seen.append(list(tmp_path.iterdir())), call(*a)))
    folder = commits_in(f"memory://here-{os.getpid()}")
    assert folder.write({"batch": 7}) == 1
    assert folder.read() == (1, {"batch": 7})
    assert seen == [[], []]

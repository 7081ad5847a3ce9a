"""What whole jobs leave of a timeline: one that ends well, one on two hosts, one that crashes; and how it is merged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpirun import SCRIPTS, launch
from tests.timelines import read, track

pytestmark = pytest.mark.launches


def merge(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smddp_tf.timeline", "merge", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("ranks", [None, 1, 3])
def test_a_job_that_ends_leaves_one_file(tmp_path: Path, ranks: int | None) -> None:
    path = tmp_path / "whole.json"
    finished = launch(
        [Path(__file__).with_name("timeline_whole_job.py")], ranks, timeout=120, env={"SMDDP_TIMELINE": str(path)}
    )
    assert "timeline" not in finished.check().output
    assert list(tmp_path.iterdir()) == [path]
    lanes_of = read(path)
    assert sorted(lanes_of) == list(range(ranks or 1))
    assert all(track(tracks, "seen").spans for tracks in lanes_of.values())


def test_parts_on_another_host_are_named_and_merged_once_they_are_copied(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "steps.json", tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = [SCRIPTS / "on_pretended_nodes.py", "2", Path(__file__).with_name("timeline_two_hosts.py"), path]
    finished = launch(script, 2, timeout=120).check()
    assert finished.output.count("does not include rank 1 (pretended-node-1)") == 1
    assert f"python -m smddp_tf.timeline merge {path}" in finished.output
    assert sorted(read(path)) == [0]
    copied = next(elsewhere.iterdir()).rename(tmp_path / "steps.json.rank1.part")
    assert sorted(read(copied)) == [1]
    assert merge(path).returncode == 0
    assert sorted(read(path)) == [0, 1]
    assert not copied.exists()


def test_a_killed_rank_leaves_valid_parts(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    finished = launch([Path(__file__).with_name("timeline_crash.py"), path], 2, timeout=120)
    assert finished.returncode != 0
    assert not finished.timed_out
    part = tmp_path / "steps.json.rank1.part"
    for each, rank in ((path, 0), (part, 1)):
        assert {event["pid"] for event in json.loads(each.read_text())} == {rank}
    assert part.stat().st_mode & 0o077 == 0
    done = merge(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == [path]
    ranks = read(path, whole=False)
    assert sorted(ranks) == [0, 1]
    assert all(track(tracks, "step 2").spans for tracks in ranks.values())


def event(rank: int, phase: str, ts: float, name: str = "ALLREDUCE") -> str:
    return json.dumps({"name": name, "ph": phase, "pid": rank, "tid": 1, "ts": ts})


def test_merge_of_files_that_were_being_written(tmp_path: Path) -> None:
    path, part = tmp_path / "t.json", tmp_path / "t.json.rank10.part"
    path.write_text(f"[\n{event(0, 'B', 1)},\n{event(0, 'E', 2)},\n{event(10, 'B', 3)}\n]\n")
    part.write_text(f'[\n{event(10, "B", 3)},\n{event(10, "E", 4)},\n{event(10, "B", 5, "X")},\n{{"name": "cut of')
    (tmp_path / "t.json.rank1.part").write_text("[\n]\n")
    for _ in range(2):
        assert merge(path, "--keep").returncode == 0
        assert part.exists()
        found = [(each["pid"], each["ph"], each["ts"]) for each in json.loads(path.read_text())]
        assert found == [(0, "B", 1), (0, "E", 2), (10, "B", 3), (10, "E", 4), (10, "B", 5)]


@pytest.mark.parametrize("kind", ["nothing there", "no folder"])
def test_merge_without_files(tmp_path: Path, kind: str) -> None:
    done = merge(tmp_path / ("t.json" if kind == "nothing there" else "no/t.json"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert str(tmp_path) in done.stderr

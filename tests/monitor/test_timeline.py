"""What rank 0 does with the parts of a timeline that has ended: which it merges, and what it says of the others."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest

from smddp_tf.monitor.timeline import finish, parts_of

STARTED = 1_700_000_000_000_000
HOSTS = {1: "a", 2: "b", 10: "b"}


def write(path: Path, rank: int, started: int = STARTED) -> Path:
    """As the engine writes it."""
    begin = f'{{"ph":"M","pid":{rank},"tid":0,"name":'
    lines = [
        f'{begin}"process_name","args":{{"name":"rank {rank} on a"}}}}',
        f'{begin}"process_sort_index","args":{{"sort_index":{rank}}}}}',
        f'{begin}"start_time_since_epoch_in_micros","args":{{"value":{started}}}}}',
        f'{{"name":"ü","ph":"B","pid":{rank},"tid":1,"ts":1.000}}',
        f'{{"name":"ü","ph":"E","pid":{rank},"tid":1,"ts":2.000}}',
    ]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    return path


def part(path: Path, rank: int) -> Path:
    return path.with_name(f"{path.name}.rank{rank}.part")


def ranks(path: Path) -> list[int]:
    events = json.loads(path.read_text(encoding="utf-8"))
    assert {event["name"] for event in events if event["ph"] != "M"} == {"ü"}
    return sorted({event["pid"] for event in events})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "steps.json", 0)


def test_parts_that_are_seen_are_merged_and_removed(path: Path) -> None:
    path.chmod(0o640)
    for rank in HOSTS:
        write(part(path, rank), rank).chmod(0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finish(str(path), HOSTS)
    assert ranks(path) == [0, 1, 2, 10]
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o640


def test_one_warning_names_the_ranks_whose_parts_are_not_seen(path: Path) -> None:
    write(part(path, 1), 1)
    with pytest.warns(UserWarning) as caught:
        finish(str(path), HOSTS)
    (warning,) = [str(each.message) for each in caught]
    assert "rank 2 (b), rank 10 (b)" in warning
    assert "rank 1 " not in warning
    assert warning.endswith(f"python -m smddp_tf.timeline merge {path}")
    assert ranks(path) == [0, 1]


@pytest.mark.parametrize("kind", ["of another timeline", "empty", "a link", "a pipe", "a folder", "unreadable"])
def test_what_is_no_part_of_this_timeline_stays(path: Path, kind: str) -> None:
    found = part(path, 2)
    if kind == "of another timeline":
        write(found, 2, STARTED - 1)
    elif kind == "empty":
        found.write_text("[\n]\n")
    elif kind == "a link":
        found.symlink_to(write(path.with_name("other"), 2))
    elif kind == "a pipe":
        os.mkfifo(found)
    elif kind == "a folder":
        found.mkdir()
    else:
        found.write_bytes(b"\xff\x00" * 100)
    with pytest.warns(UserWarning, match=r"include rank 2 \(b\): "):
        finish(str(path), {2: "b"})
    assert ranks(path) == [0]
    assert os.path.lexists(found)


def test_without_other_ranks_nothing_is_rewritten(path: Path) -> None:
    before = path.stat().st_ino
    finish(str(path), {})
    assert path.stat().st_ino == before


def test_what_cannot_be_merged_is_a_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(part(path, 1), 1)
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.warns(UserWarning, match=r"cannot be merged: .*Permission denied.*timeline merge"):
        finish(str(path), {1: "a"})
    assert ranks(path) == [0]
    assert part(path, 1).exists()


def test_offline_the_parts_of_other_timelines_are_left_alone(path: Path) -> None:
    mine = [write(part(path, rank), rank) for rank in (2, 10)]
    write(part(path, 3), 3, STARTED - 1)
    part(path, 4).write_text("[\n")  # killed before it could say
    assert parts_of(path) == [mine[0], part(path, 4), mine[1]]
    path.unlink()
    assert len(parts_of(path)) == 4

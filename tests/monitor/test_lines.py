"""The files of a recording: bounded, continued, never through links."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.monitor import lines
from tests.recordings import lines_of


def test_files_are_bounded_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is the end, without a gap; a file that is there already is continued."""
    monkeypatch.setattr(lines, "MAX_BYTES", 2000)
    path = tmp_path / "a.jsonl"
    for start in (0, 300):
        writer = lines.Lines(path)
        for number in range(start, start + 300, 3):
            writer.write([{"number": number + place} for place in range(3)])
        writer.write([])
        writer.close()
    found = [line["number"] for line in lines_of(path)]
    assert found == list(range(found[0], 600))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 4000
    assert {file.name for file in tmp_path.iterdir()} == {"a.jsonl", "a.jsonl.1"}


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    writer = lines.Lines(tmp_path / "missing" / "a.jsonl")
    with pytest.raises(FileNotFoundError):
        writer.write([{"a": 1}])


def test_no_link_is_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / "a.jsonl").symlink_to(other)
    (tmp_path / "b.part").symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        lines.Lines(tmp_path / "a.jsonl").write([{"a": 1}])
    with pytest.raises(OSError, match="symbolic links"):
        lines.replace(tmp_path / "b.json", {"a": 1})
    assert other.read_text() == "of somebody else"

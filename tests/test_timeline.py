"""`python -m smddp_tf.timeline merge`, as a command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smddp_tf import timeline


def test_merge_adds_the_parts_and_keeps_them_if_asked_to(tmp_path: Path) -> None:
    path, part = tmp_path / "steps.json", tmp_path / "steps.json.rank3.part"
    path.write_text('[\n{"name":"a","pid":0}\n]\n')
    part.write_text('[\n{"name":"b","pid":3}\n]\n')
    assert timeline.main(["merge", str(path), "--keep"]) == 0
    assert [event["name"] for event in json.loads(path.read_text())] == ["a", "b"]
    assert part.exists()
    assert timeline.main(["merge", str(path), str(part)]) == 0
    assert [event["name"] for event in json.loads(path.read_text())] == ["a", "b"]  # not twice
    assert not part.exists()


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert timeline.main(["merge", str(tmp_path / "none.json")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("python -m smddp_tf.timeline: There is no timeline '")
    assert said.count("\n") == 1

"""What takes long says so, once; what does not says nothing."""

from __future__ import annotations

import time

import pytest

from smddp_tf.elastic.commits import CommitFolder
from smddp_tf.lifecycle import slow


def line_from(capsys: pytest.CaptureFixture[str]) -> str:
    """Waits for a line on standard error."""
    give_up_at, text = time.monotonic() + 10, ""
    while not text.endswith("\n"):
        assert time.monotonic() < give_up_at, "no line has come"
        time.sleep(0.01)
        text += capsys.readouterr().err
    return text


def test_what_takes_long_says_so_once(capsys, monkeypatch):
    monkeypatch.setattr(slow, "_SECONDS", 0.02)
    with slow.told_if_slow("saving a.keras"):
        assert line_from(capsys) == "smddp_tf: saving a.keras has taken 0 s so far.\n"
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_what_ends_in_time_says_nothing(capsys, monkeypatch):
    monkeypatch.setattr(slow, "_SECONDS", 0.3)
    with slow.told_if_slow("saving a.keras"):
        pass
    time.sleep(0.6)
    assert capsys.readouterr().err == ""


def test_a_commit_of_long_content(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(slow, "_SECONDS", 0.02)
    lines = []

    def content():
        lines.append(line_from(capsys))
        yield "state"

    folder = CommitFolder(tmp_path / "commits")
    folder.begin(lambda: folder.write(content()), wait=True)
    assert lines == [f"smddp_tf: writing a commit to {tmp_path}/commits has taken 0 s so far.\n"]

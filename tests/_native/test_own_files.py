"""Which files are this user's alone."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from smddp_tf._native.own_files import described, is_own


@pytest.mark.parametrize(("mode", "own"), [(0o600, True), (0o755, True), (0o620, False), (0o602, False)])
def test_nobody_else_may_write(tmp_path: Path, mode: int, own: bool) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, tmp_path):
        path.chmod(mode | 0o100)
        assert is_own(os.lstat(path)) is own


def test_links_and_pipes_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert not is_own(os.lstat(tmp_path / "link"))
    assert not is_own(os.lstat(tmp_path / "pipe"))


def test_files_of_root_are_trusted_and_of_others_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def of(user: int) -> Any:
        return SimpleNamespace(st_mode=0o100600, st_uid=user)

    assert is_own(of(1000))
    assert is_own(of(0))
    assert not is_own(of(4711))
    assert described(of(4711)) == "mode -rw-------, user 4711"

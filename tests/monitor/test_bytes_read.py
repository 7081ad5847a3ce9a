"""The number of bytes that this process has read."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.monitor import bytes_read as module
from smddp_tf.monitor.bytes_read import bytes_read


def test_what_is_read_is_counted_also_from_the_page_cache(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"x" * 3_000_000)
    for _ in range(2):
        before = bytes_read()
        file.read_bytes()
        assert 3_000_000 <= bytes_read() - before < 3_100_000


def test_where_linux_hides_the_counters_nothing_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COUNTERS", tmp_path / "none")
    assert bytes_read() == 0

"""The blocks of code in README and docs/ run, on 2 ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches


def test_blocks_run(tmp_path: Path) -> None:
    finished = launch([Path(__file__).with_name("blocks.py"), tmp_path], 2, timeout=300).check()
    counted = re.search(r"BLOCKS (\d+) FAILED 0$", finished.output, re.MULTILINE)
    assert counted, finished.output
    assert int(counted[1]) > 25, finished.output
    assert "FAILED on rank" not in finished.output

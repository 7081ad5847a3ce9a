"""Every example in a docstring runs, on one rank; what it shows as its result is what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches


@pytest.mark.one_process
def test_examples_run(tmp_path: Path) -> None:
    finished = launch([Path(__file__).with_name("docstrings.py"), tmp_path], None, timeout=400).check()
    counted = re.search(r"DOCSTRINGS (\d+) EXAMPLES (\d+) FAILED 0", finished.output)
    assert counted, finished.output
    assert int(counted[1]) > 20, finished.output

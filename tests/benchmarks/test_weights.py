"""`benchmarks.weights` ends with the same weights in all three ways."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from benchmarks.weights import WAYS
from tests.variants import full

pytestmark = pytest.mark.launches


@full
def test_all_ways_have_one_sum() -> None:
    command = [sys.executable, "-m", "benchmarks.weights", "--layers", "1", "--width", "256", "--steps", "3"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] and line.split()[0] in WAYS]
    assert [row[0] for row in rows] == list(WAYS)
    sums = [float(row[-1]) for row in rows]
    assert sums[0] > 0
    assert sums == pytest.approx([sums[0]] * len(WAYS), rel=1e-6)
    stored = [int(re.sub(r"\D", "", row[1])) for row in rows]
    assert stored[2] < stored[0] == stored[1]

"""tests/random: cases of fixed seeds, on two ranks (in full also on three of two nodes); and that it finds errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.mpirun import ROOT
from tests.variants import full, in_full

pytestmark = pytest.mark.launches

SECONDS = 12


def run(*arguments: str | int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.random", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize("arguments", [("--ranks", 2), *in_full(("--ranks", 3, "--nodes", "2,1", "--first", 500))])
def test_cases_of_a_fixed_seed(arguments: tuple) -> None:
    done = run("--seconds", SECONDS, "--count", 9, "--seed", 3, "--no-shrink", *arguments)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    assert "0 findings" in done.stdout


@full
def test_a_wrong_number_is_found_and_shrunk() -> None:
    """Parts of unequal size in a loop, which no case is drawn with: `train_on_batch` does not count rows."""
    usual = ["floats=float64", "style=functional", "metrics=", "norm=", "batch=4", "steps=3"]
    done = run("--case", 10, "--with", "way=distribution_batch", "uneven=rows", *usual)
    assert done.returncode == 1, done.stdout + done.stderr
    replay, smallest, *lines = done.stdout.split("SMALLEST")[1].splitlines()
    assert "--seed 1 --case 10 --ranks 2 --with " in replay
    assert smallest.split() == ["way=distribution_batch", "uneven=rows"]
    assert "rank 0: weights head0/0: off by" in lines[0]

"""Runs tests/parallel under mpirun, once for each arrangement of ranks and nodes.

What is about Keras alone is run on 1, 2 and 4 ranks, with SMDDP_TEST_FULL everywhere: three ranks and uneven nodes are
about the engine, about shares that do not divide, and about whom a rank out of data leaves behind.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.launch.mpirun import Finished, launch

TIMEOUT_SECONDS = 900  # a stuck test ends the job much sooner, by its own deadline

ROOT = Path(__file__).resolve().parents[2]
KERAS_ON_ANY_NUMBER = ("test_keras_optimizer.py", "test_keras_uneven.py")

ARRANGEMENTS = {
    "1 rank": (1, None),
    "2 ranks": (2, None),
    "3 ranks": (3, None),
    "4 ranks on 2 pretended nodes": (4, "2,2"),
    "3 ranks on 2 uneven nodes": (3, "2,1"),
}


@pytest.mark.parametrize(("ranks", "nodes"), ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def test_parallel_suite(ranks: int, nodes: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-m", "pytest", *_tests(ranks), "-p", "tests.mpi_plugin", "-p", "no:cacheprovider", "-q"]
    arguments += ["--color=no", "--rank-logs", str(tmp_path)]
    if nodes is not None:
        arguments += ["--pretend-nodes", nodes]
    finished = launch(arguments, ranks, TIMEOUT_SECONDS)
    _check(finished, tmp_path)
    passed = re.search(r"(\d+) passed", finished.output)
    assert passed, f"No test passed. The job printed:\n{finished.output}"
    with capsys.disabled():
        print(f" {passed.group(1)} tests passed in {finished.seconds:.0f} s", end=" ")


def _tests(ranks: int) -> list[str]:
    if ranks != 3 or os.environ.get("SMDDP_TEST_FULL"):
        return ["tests/parallel"]
    files = sorted((ROOT / "tests/parallel").glob("test_*.py"))
    chosen = [file for file in files if not file.name.startswith("test_keras_") or file.name in KERAS_ON_ANY_NUMBER]
    return [str(file.relative_to(ROOT)) for file in chosen]


def _check(finished: Finished, logs: Path) -> None:
    try:
        finished.check()
    except AssertionError as error:
        tails = [f"===== {log.name}\n{log.read_text(errors='replace')[-8000:]}" for log in sorted(logs.glob("*.log"))]
        raise AssertionError("\n".join([str(error), *tails])) from None

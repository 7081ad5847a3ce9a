"""Runs tests/parallel under mpirun, once for each arrangement of ranks and nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.launch.mpirun import Finished, launch

TIMEOUT_SECONDS = 900  # a stuck test ends the job much sooner, by its own deadline

ARRANGEMENTS = {
    "1 rank": (1, None),
    "2 ranks": (2, None),
    "3 ranks": (3, None),
    "4 ranks on 2 pretended nodes": (4, "2,2"),
    "3 ranks on 2 uneven nodes": (3, "2,1"),
}


@pytest.mark.parametrize(("ranks", "nodes"), ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def test_parallel_suite(ranks: int, nodes: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-m", "pytest", "tests/parallel", "-p", "tests.mpi_plugin", "-p", "no:cacheprovider", "-q"]
    arguments += ["--color=no", "--rank-logs", str(tmp_path)]
    if nodes is not None:
        arguments += ["--pretend-nodes", nodes]
    finished = launch(arguments, ranks, TIMEOUT_SECONDS)
    _check(finished, tmp_path)
    passed = re.search(r"(\d+) passed", finished.output)
    assert passed, f"No test passed. The job printed:\n{finished.output}"
    with capsys.disabled():
        print(f" {passed.group(1)} tests passed in {finished.seconds:.0f} s", end=" ")


def _check(finished: Finished, logs: Path) -> None:
    try:
        finished.check()
    except AssertionError as error:
        tails = [f"===== {log.name}\n{log.read_text(errors='replace')[-8000:]}" for log in sorted(logs.glob("*.log"))]
        raise AssertionError("\n".join([str(error), *tails])) from None

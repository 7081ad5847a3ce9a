"""Runs tests/parallel under mpirun, once for each arrangement of ranks and nodes.

Two ranks run everything. Elsewhere what is about Python alone (Keras, the API's forms, other libraries' names) is left
to a few files: one rank is about the program that was not launched, three about shares that do not divide, nodes about
the ways between them. With SMDDP_TEST_FULL everything is run everywhere, and also on three ranks of one node.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.launch.mpirun import Finished, launch

TIMEOUT_SECONDS = 1800  # a stuck test ends the job much sooner, by its own deadline

ROOT = Path(__file__).resolve().parents[2]
# About Python alone: what names begin with.
PYTHON_ALONE = (
    "compiled",
    "data_autotune",
    "data_service",
    "data_shard",
    "elastic",
    "keras_",
    "local_sources",
    "rank_seeds",
    "reduced_once",
    "resize",
    "sdp",
    "sessions",
    "signatures",
    "sync_batch_normalization",
    "tape_api",
)

# Ranks, pretended nodes, and which of those files are run there.
ARRANGEMENTS = {
    "1 rank": (1, None, ("compiled", "keras_callbacks", "keras_optimizer", "sdp")),
    "2 ranks": (2, None, PYTHON_ALONE),
    "4 ranks on 2 pretended nodes": (4, "2,2", ("compiled", "elastic", "keras_uneven")),
    "3 ranks on 2 uneven nodes": (3, "2,1", ("keras_optimizer", "keras_uneven")),
}
FULL = bool(os.environ.get("SMDDP_TEST_FULL"))
if FULL:
    ARRANGEMENTS["3 ranks"] = (3, None, ())


@pytest.mark.parametrize(("ranks", "nodes", "python"), ARRANGEMENTS.values(), ids=ARRANGEMENTS.keys())
def test_parallel_suite(
    ranks: int, nodes: str | None, python: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-m", "pytest", *_tests(python), "-p", "tests.mpi_plugin", "-p", "no:cacheprovider", "-q"]
    arguments += ["--color=no", "--rank-logs", str(tmp_path)]
    if nodes is not None:
        arguments += ["--pretend-nodes", nodes]
    finished = launch(arguments, ranks, TIMEOUT_SECONDS)
    _check(finished, tmp_path)
    passed = re.search(r"(\d+) passed", finished.output)
    assert passed, f"No test passed. The job printed:\n{finished.output}"
    with capsys.disabled():
        print(f" {passed.group(1)} tests passed in {finished.seconds:.0f} s", end=" ")


def _tests(python: tuple[str, ...]) -> list[str]:
    if FULL:
        return ["tests/parallel"]
    names = {file.stem.removeprefix("test_"): file for file in sorted((ROOT / "tests/parallel").glob("test_*.py"))}
    chosen = [file for name, file in names.items() if name.startswith(python) or not name.startswith(PYTHON_ALONE)]
    return [str(file.relative_to(ROOT)) for file in chosen]


def _check(finished: Finished, logs: Path) -> None:
    try:
        finished.check()
    except AssertionError as error:
        tails = [f"===== {log.name}\n{log.read_text(errors='replace')[-8000:]}" for log in sorted(logs.glob("*.log"))]
        raise AssertionError("\n".join([str(error), *tails])) from None

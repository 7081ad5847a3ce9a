"""Runs the files marked `ranks` under mpirun, once for each arrangement of ranks and nodes.

Two ranks run everything. Elsewhere only what depends on the arrangement is run: nodes for what travels between them and
for ranks that come and go (where the nodes differ in size, the ranks' shares do), one rank for what a program that was
not launched does. The arithmetic of ranks and nodes itself is tested by files marked `native`, on up to eight ranks.
With SMDDP_TEST_FULL everything is run everywhere, and also on three ranks of one node.

On two ranks there are two jobs, which `make test` runs beside each other: ranks that wait leave cores idle.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.marks import ARRANGEMENTS, TESTS, files_with, marks_of
from tests.support.mpirun import ROOT, Finished, launch
from tests.variants import FULL

pytestmark = pytest.mark.launches

TIMEOUT_SECONDS = 1800  # a stuck test ends the job much sooner, by its own deadline
SLOWEST = 10  # tests that are printed

NAMES = {
    "1": "1 rank",
    "2": "2 ranks",
    "2+2": "4 ranks on 2 pretended nodes",
    "2+1": "3 ranks on 2 uneven nodes",
    **({"3": "3 ranks"} if FULL else {}),
}

# On two ranks the tests of Keras take three quarters of the time: they are a job of their own.
KERAS = TESTS / "keras"
JOBS = {name: (key, None) for key, name in NAMES.items() if key != "2"}
JOBS |= {"2 ranks, tests of Keras": ("2", True), "2 ranks, other tests": ("2", False)}


@pytest.mark.parametrize(
    ("arrangement", "of_keras"),
    [pytest.param(*job, id=name, marks=[pytest.mark.one_process] * (job[0] == "1")) for name, job in JOBS.items()],
)
def test_rank_suite(
    arrangement: str, of_keras: bool | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks, nodes = ARRANGEMENTS[arrangement]
    files = files_with("ranks", None if FULL else arrangement)
    if of_keras is not None:
        files = [file for file in files if (KERAS in file.parents) == of_keras]
    names = [str(file.relative_to(ROOT)) for file in files]
    arguments = ["-m", "pytest", *names, "-p", "tests.mpi_plugin"]
    arguments += ["-p", "no:cacheprovider", "-q", "--color=no", f"--durations={SLOWEST}", "--rank-logs", str(tmp_path)]
    if nodes is not None:
        arguments += ["--pretend-nodes", nodes]
    finished = launch(arguments, ranks, TIMEOUT_SECONDS)
    _check(finished, tmp_path)
    passed = re.search(r"(\d+) passed", finished.output)
    assert passed, f"No test passed. The job printed:\n{finished.output}"
    slowest = re.findall(r"^[\d.]+s (?:call|setup|teardown) .*$", finished.output, re.MULTILINE)
    with capsys.disabled():
        print("", f"{passed.group(1)} tests passed in {finished.seconds:.0f} s; the slowest:", *slowest, sep="\n")


def test_every_file_has_arrangements_that_exist() -> None:
    for file in files_with("ranks"):
        found = marks_of(file)["ranks"]
        assert "2" in found, file
        assert set(found) <= set(NAMES), file


def _check(finished: Finished, logs: Path) -> None:
    try:
        finished.check()
    except AssertionError as error:
        tails = [f"===== {log.name}\n{log.read_text(errors='replace')[-8000:]}" for log in sorted(logs.glob("*.log"))]
        raise AssertionError("\n".join([str(error), *tails])) from None

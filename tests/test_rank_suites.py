"""Runs the files marked `ranks` under mpirun, once for each arrangement of ranks and nodes.

Two ranks run everything. Elsewhere only what depends on the arrangement is run: nodes for what travels between them and
for ranks that come and go (where the nodes differ in size, the ranks' shares do), one rank for what a program that was
not launched does. The arithmetic of ranks and nodes itself is tested by files marked `native`, on up to eight ranks.
With SMDDP_TEST_FULL everything is run everywhere, and also on three ranks of one node.

The library's ranks meet and send by MPI, except on three ranks of two nodes: there they do it over TCP. With
SMDDP_TEST_FULL each arrangement of several ranks is run over both.

On two ranks there are two jobs, which `make test` runs beside each other: ranks that wait leave cores idle.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

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

KERAS = TESTS / "keras"


class Job(NamedTuple):
    """A run of pytest under mpirun; `of_keras`: only the tests of Keras, or only the others."""

    arrangement: str
    tcp: bool = False
    of_keras: bool | None = None


# On two ranks the tests of Keras take three quarters of the time: they are a job of their own.
JOBS = {name: Job(key, tcp=key == "2+1") for key, name in NAMES.items() if key != "2"}
JOBS |= {"2 ranks, tests of Keras": Job("2", of_keras=True), "2 ranks, other tests": Job("2", of_keras=False)}
if FULL:
    JOBS |= {
        f"{name}, by {'MPI' if key == '2+1' else 'TCP'}": Job(key, tcp=key != "2+1")
        for key, name in NAMES.items()
        if key != "1"
    }


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(job, id=name, marks=[pytest.mark.one_process] * (job.arrangement == "1"))
        for name, job in JOBS.items()
    ],
)
def test_rank_suite(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranks, nodes = ARRANGEMENTS[job.arrangement]
    files = files_with("ranks", None if FULL else job.arrangement)
    if job.of_keras is not None:
        files = [file for file in files if (KERAS in file.parents) == job.of_keras]
    names = [str(file.relative_to(ROOT)) for file in files]
    arguments = ["-m", "pytest", *names, "-p", "tests.mpi_plugin"]
    arguments += ["-p", "no:cacheprovider", "-q", "--color=no", f"--durations={SLOWEST}", "--rank-logs", str(tmp_path)]
    if nodes is not None:
        arguments += ["--pretend-nodes", nodes]
    arguments += ["--tcp"] * job.tcp
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

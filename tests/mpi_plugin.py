"""pytest under mpirun: every rank runs the same tests in the same order and all ranks report the same result.

    mpirun -np 3 python -m pytest tests -p tests.mpi_plugin [--pretend-nodes 2,1] [--tcp] [--rank-logs DIR]

What it promises:

- After each phase of a test the ranks exchange their outcomes. A test that fails on one rank fails on all; rank 0
  shows the report of every rank that failed.
- A test has a deadline (180 s; `@pytest.mark.deadline(seconds)` changes it). When it passes, every rank prints the
  test's name and all its Python stacks, and the job ends with exit code 70.
- A rank that fails while the others are stuck (they wait for its part of a collective) waits for them for 15 s only.
- Rank 0 owns the terminal. The others write to DIR/rank-N.log, or nowhere without --rank-logs.
- The exit status is not zero on any rank when something failed on one.

Tests must therefore decide from values that are equal on all ranks whether to skip, and must not draw random
parameters (hypothesis would choose differently on each rank).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agreement import Agreement, RanksMissing
from tests.support.mpirun import free_port

# A busy machine has two cores for all ranks; and TensorFlow may take a minute to end an iterator.
DEADLINE_SECONDS = 180.0
COLLECTION_SECONDS = 180.0  # importing TensorFlow on every rank of an oversubscribed machine takes its time
GRACE_AFTER_FAILURE_SECONDS = 15.0
EXIT_STUCK = 70
EXIT_NOT_STARTED = 71
_TEXT_LIMIT = 20_000


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mpi", "tests under mpirun")
    group.addoption(
        "--pretend-nodes",
        metavar="N,N,...",
        help="ranks per pretended node, such as 2,1; sets SMDDP_HOST_ID on each rank",
    )
    group.addoption("--tcp", action="store_true", help="the library does without MPI; only the tests use it")
    group.addoption("--rank-logs", metavar="DIR", help="folder for the output of the ranks above 0")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """Comes before pytest's own capturing, so that what pytest takes for the terminal is already the right file."""
    try:
        _prepare_rank(early_config.known_args_namespace)
        return (yield)
    except BaseException:
        # To end in the usual way would be to wait for the other ranks in MPI_Finalize, and they for this one.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(EXIT_NOT_STARTED)


def _prepare_rank(options: argparse.Namespace) -> None:
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    if options.pretend_nodes:
        os.environ["SMDDP_HOST_ID"] = f"pretended-node-{_node_of(rank, size, options.pretend_nodes)}"
    if options.tcp:
        where = MPI.COMM_WORLD.bcast(f"127.0.0.1:{free_port()}")
        own = {"RANK": str(rank), "SIZE": str(size), "COORDINATOR": where, "SECRET": where, "MPI": "off"}
        os.environ.update({f"SMDDP_{name}": value for name, value in own.items()})
    if rank > 0:
        _redirect_output(options.rank_logs, rank)


def pytest_configure(config: pytest.Config) -> None:
    from mpi4py import MPI

    config.addinivalue_line("markers", "deadline(seconds): time after which the whole job is ended")
    config.pluginmanager.import_plugin("tests.support.rank_fixtures")
    config.pluginmanager.register(RankPlugin(Agreement(MPI.COMM_WORLD), config), "smddp-ranks")


def _redirect_output(folder: str | None, rank: int) -> None:
    if folder is None:
        log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)  # stderr stays: a crash must not be silent
    else:
        Path(folder).mkdir(parents=True, exist_ok=True)
        log = os.open(Path(folder) / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
    os.close(log)


def _node_of(rank: int, size: int, pretend_nodes: str) -> int:
    per_node = [int(part) for part in pretend_nodes.split(",")]
    if sum(per_node) != size:
        raise pytest.UsageError(f"--pretend-nodes {pretend_nodes} must add up to the {size} ranks of the job.")
    return next(node for node in range(len(per_node)) if rank < sum(per_node[: node + 1]))


class Watchdog:
    """Ends the process when a test takes too long. The others end at about the same time: they started together."""

    def __init__(self, rank: int):
        self._rank = rank
        self._terminal = os.fdopen(os.dup(2), "w")
        self._timer: threading.Timer | None = None
        # mpirun sends SIGTERM when another rank has died: show where this one was.
        faulthandler.register(signal.SIGTERM, file=self._terminal, all_threads=True, chain=True)

    def start(self, what: str, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self.end_job, [f"{what} took longer than {seconds:g} s."])
        self._timer.daemon = True
        self._timer.start()
        # Works also when native code never gives the interpreter back.
        faulthandler.dump_traceback_later(seconds + 5, exit=True, file=self._terminal)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        faulthandler.cancel_dump_traceback_later()

    def end_job(self, why: str) -> None:
        """Prints `why` and every thread's stack and ends the process; mpirun then ends the other ranks."""
        self.say(f"rank {self._rank}: {why} Stacks of all threads:")
        faulthandler.dump_traceback(file=self._terminal, all_threads=True)
        self._terminal.flush()
        time.sleep(2)  # the other ranks' deadlines pass now as well; let them print theirs
        os._exit(EXIT_STUCK)

    def say(self, text: str) -> None:
        self._terminal.write(f"\n{text}\n")
        self._terminal.flush()


class RankPlugin:
    """The hooks that need to know the other ranks."""

    def __init__(self, agreement: Agreement, config: pytest.Config):
        self._agreement = agreement
        self._pretend_nodes = config.getoption("pretend_nodes")
        self._watchdog = Watchdog(agreement.rank)

    def pytest_report_header(self) -> str:
        nodes = f" as pretended nodes of {self._pretend_nodes}" if self._pretend_nodes else ""
        return f"ranks: {self._agreement.size}{nodes}"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """All ranks must have collected the same tests, or none runs any."""
        mine = ([item.nodeid for item in session.items], session.testsfailed)
        everybody = self._exchange(mine, "the collection of tests", COLLECTION_SECONDS)
        broken = [rank for rank, (_, failed) in enumerate(everybody) if failed]
        if broken and not session.testsfailed:
            raise pytest.UsageError(f"Collecting tests failed on rank(s) {_listed(broken)}.")
        if not broken and any(ids != mine[0] for ids, _ in everybody):
            counts = _listed([len(ids) for ids, _ in everybody])
            raise pytest.UsageError(f"The ranks collected different tests ({counts} of them, in rank order).")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[object]:
        marker = item.get_closest_marker("deadline")
        self._watchdog.start(item.nodeid, marker.args[0] if marker else DEADLINE_SECONDS)
        try:
            return (yield)
        finally:
            self._watchdog.stop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[object]:
        report = yield
        where = f"{report.when} of {item.nodeid}"
        failed = report.outcome == "failed"
        if failed and self._agreement.rank > 0:
            self._watchdog.say(f"rank {self._agreement.rank}: {where} failed:\n{_text_of(report)}")
        patience = GRACE_AFTER_FAILURE_SECONDS if failed else float("inf")  # the watchdog bounds the other case
        mine = (where, report.outcome, _text_of(report))
        try:
            everybody = self._exchange(mine, where, patience)
        except RanksMissing as missing:
            self._watchdog.say(f"{mine[2]}\n{where} failed on rank {self._agreement.rank}")
            self._watchdog.end_job(f"{where} failed here while {missing}: they are stuck.")
        _make_common(report, everybody)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._watchdog.start("the end of the session", DEADLINE_SECONDS)
        statuses = self._exchange(int(session.exitstatus), "the end of the session", float("inf"))
        session.exitstatus = max(statuses)
        self._watchdog.stop()

    def _exchange(self, value: object, what: str, timeout: float) -> list:
        """Like Agreement.exchange, and every rank must be at the same place."""
        places = self._agreement.exchange((what, value), timeout)
        if any(place != what for place, _ in places):
            self._watchdog.end_job("The ranks are not at the same place: " + _listed([place for place, _ in places]))
        return [value for _, value in places]


def _make_common(report: pytest.TestReport, everybody: list[tuple[str, str, str]]) -> None:
    """Gives `report` the outcome that holds for all ranks."""
    outcomes = [outcome for _, outcome, _ in everybody]
    failed = [rank for rank, outcome in enumerate(outcomes) if outcome == "failed"]
    if failed:
        report.outcome = "failed"
        report.longrepr = f"Failed on rank(s) {_listed(failed)} of {len(outcomes)}.\n" + "\n".join(
            f"----- rank {rank} -----\n{everybody[rank][2]}" for rank in failed
        )
    elif len(set(outcomes)) > 1:
        report.outcome = "failed"
        report.longrepr = f"The ranks disagree about skipping: {_listed(outcomes)} (in rank order)."


def _text_of(report: pytest.TestReport) -> str:
    if report.outcome != "failed":
        return ""
    text = report.longreprtext
    for title, content in report.sections:
        text += f"\n--- {title} ---\n{content}"
    return text[-_TEXT_LIMIT:]


def _listed(values: list) -> str:
    return ", ".join(map(str, values))

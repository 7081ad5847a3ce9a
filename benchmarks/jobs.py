"""Starts the ranks of a candidate and sends each one commands over a socket. Every wait has a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.measure import slowest_rank
from benchmarks.peers import ROOT, Candidate
from benchmarks.reference import Group

__all__ = ["Job", "JobError"]

START_SECONDS = 120.0
CALL_SECONDS = 180.0


class JobError(RuntimeError):
    """A candidate failed; the message says which and, as far as its output tells, why."""


class Job:
    """All ranks of one candidate. A context manager: on leaving, nothing of it is left running.

    Between calls its ranks are stopped (SIGSTOP), because some libraries keep threads that poll: Horovod's take a good
    part of a core, which whoever is measured meanwhile would miss.

    `failure` says what went wrong; then every further call raises JobError, and leaving does not ask it to end.
    """

    def __init__(self, candidate: Candidate, ranks: int) -> None:
        self.candidate = candidate
        self.ranks = ranks
        self.about: dict[str, Any] = {}
        self.failure = ""
        self._folder = tempfile.TemporaryDirectory(prefix="smddp_bench_", dir="/dev/shm")
        self._log = open(Path(self._folder.name) / "log", "w+b")  # noqa: SIM115
        self._processes: list[subprocess.Popen] = []
        self._channels: list[Any] = []
        self._pids: list[int] = []

    def __enter__(self) -> Job:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and not self.failure:
            with contextlib.suppress(JobError):  # kept in `failure`
                self.call("close")
        self._end()

    def call(self, what: str, **arguments: Any) -> list[Any]:
        """Runs a command of the worker on all ranks together. Returns what each answered, by rank."""
        if self.failure:
            raise JobError(self.failure)
        self._signal(signal.SIGCONT)
        try:
            self._say({"do": what, **arguments})
            return [self._answer(rank)["value"] for rank in range(self.ranks)]
        finally:
            if what != "close" and self.candidate.stops:
                self._signal(signal.SIGSTOP)

    def time(self, repetitions: int) -> list[float]:
        """Seconds of the slowest rank in each repetition of the prepared case."""
        return slowest_rank(self.call("time", repetitions=repetitions))

    def _start(self) -> None:
        folder = Path(self._folder.name)
        for name in ("barrier", "reference"):
            Group.create_file(folder / name, self.ranks)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
            listener.listen(self.ranks)
            listener.settimeout(START_SECONDS)
            self._launch(folder)
            self._channels = self._accept(listener)
        self.about = self.call("open")[0]

    def _launch(self, folder: Path) -> None:
        variables = {
            **os.environ,
            **self.candidate.variables,
            "PYTHONPATH": str(ROOT),
            "SMDDP_BENCH_RANKS": str(self.ranks),
            "SMDDP_BENCH_SOCKET": str(folder / "socket"),
            "SMDDP_BENCH_STORE": str(folder / "store"),
            "SMDDP_BENCH_BARRIER": str(folder / "barrier"),
            "SMDDP_BENCH_REFERENCE": str(folder / "reference"),
        }
        for rank in range(1 if self.candidate.launcher else self.ranks):
            if not self.candidate.launcher:
                variables["SMDDP_BENCH_RANK"] = str(rank)
            self._processes.append(
                subprocess.Popen(
                    self.candidate.command(self.ranks),
                    env=variables,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _accept(self, listener: socket.socket) -> list[Any]:
        channels = {}
        while len(channels) < self.ranks:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise self._error(f"only {len(channels)} of {self.ranks} ranks started") from None
            connection.settimeout(CALL_SECONDS)
            lines = connection.makefile("rw", encoding="utf-8")
            connection.close()  # the file keeps it open
            hello = json.loads(lines.readline())
            channels[hello["rank"]] = lines
            self._pids.append(hello["pid"])
        return [channels[rank] for rank in range(self.ranks)]

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _say(self, command: dict[str, Any]) -> None:
        try:
            for lines in self._channels:
                lines.write(json.dumps(command) + "\n")
                lines.flush()
        except OSError:
            raise self._error(f"a rank was gone before {command['do']!r}") from None

    def _answer(self, rank: int) -> dict[str, Any]:
        try:
            line = self._channels[rank].readline()
        except OSError:
            raise self._error(f"rank {rank} did not answer in {CALL_SECONDS:.0f} s") from None
        if not line:
            raise self._error(f"rank {rank} ended")
        reply = json.loads(line)
        if "error" in reply:
            raise self._error(f"rank {rank}: {reply['error']}")
        return reply

    def _error(self, what: str) -> JobError:
        self._log.flush()
        self._log.seek(0)
        output = self._log.read().decode(errors="replace").strip()[-2000:]
        self.failure = f"{self.candidate.name}, {self.ranks} ranks: {what}\n{output}"
        return JobError(self.failure)

    def _end(self) -> None:
        self._signal(signal.SIGCONT)
        for lines in self._channels:
            with contextlib.suppress(OSError):
                lines.close()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._log.close()
        self._folder.cleanup()

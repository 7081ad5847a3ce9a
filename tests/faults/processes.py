"""What /proc knows of a job's processes. Nodes of the lab share this machine's process numbers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.support.mpirun import pids_with

__all__ = ["MARK", "Process", "marked", "send"]

MARK = "SMDDP_FAULTS_JOB"  # in the environment of all that a job starts


@dataclass(frozen=True)
class Process:
    """A process, told from a later one with the same number by its start."""

    number: int
    started: int

    @staticmethod
    def of(number: int) -> Process:
        return Process(number, _stat(number)[1])

    @property
    def alive(self) -> bool:
        """Whether it runs or is stopped: one that has ended and was not collected does neither."""
        state, started, _ = _stat(self.number)
        return state not in "ZX" and started == self.started

    @property
    def parent(self) -> int:
        return _stat(self.number)[2]

    @property
    def words(self) -> str:
        try:
            return Path(f"/proc/{self.number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""


def send(processes: Iterable[Process], sign: signal.Signals) -> None:
    for process in processes:
        if process.alive:
            try:
                os.kill(process.number, sign)
            except ProcessLookupError:
                pass


def marked(mark: str) -> list[Process]:
    """The living processes whose environment has the mark."""
    found = [Process.of(pid) for pid in pids_with(MARK, mark)]
    return [process for process in found if process.alive]


def _stat(number: int) -> tuple[str, int, int]:
    """State, start time and parent; ("X", 0, 0) when it is gone."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return "X", 0, 0
    return fields[0], int(fields[19]), int(fields[1])

"""A job under way: its processes, the notes of its ranks, and its end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Union

from tests.faults.places import Here, InLab
from tests.faults.processes import Process, marked, send

__all__ = ["Place", "Running"]

_LAUNCHER_SECONDS = 3.0
Place = Union[Here, InLab]


class Running:
    """A job that has been started.

    Args:
        process: the launcher.
        place: where.
        folder: for notes: R.process, R.ready, R.end, ... of rank R.
        mark: of the job's processes.
        ranks: number.
        victim: rank to which the fault happens.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], place: Place, folder: Path, mark: str, ranks: int, victim: int
    ) -> None:
        self.process, self.place, self.folder, self.mark = process, place, folder, mark
        self.ranks, self.victim = ranks, victim
        self.launcher = Process.of(process.pid)
        self.ended_at: dict[int, float] = {}
        self.launcher_ended_at: float | None = None
        self._ranks: dict[int, Process] = {}

    @property
    def in_lab(self) -> InLab:
        assert isinstance(self.place, InLab)
        return self.place

    @property
    def here(self) -> Here:
        assert isinstance(self.place, Here)
        return self.place

    def rank(self, rank: int) -> Process:
        return self._ranks[rank]

    def node_of(self, rank: int) -> int:
        return rank // (self.ranks // self.place.nodes)

    def ranks_on(self, node: int) -> set[int]:
        return {rank for rank in range(self.ranks) if self.node_of(rank) == node}

    def notes(self, name: str) -> dict[int, Any]:
        """By rank."""
        found = {}
        for path in self.folder.glob(f"*.{name}"):
            found[int(path.stem)] = json.loads(path.read_text(encoding="utf-8"))
        return found

    @property
    def output(self) -> str:
        """What the job has printed."""
        return (self.folder / "output").read_text(errors="replace")

    def wait_for(self, name: str, ranks: Collection[int], seconds: float) -> None:
        """Until these ranks have such a note.

        Raises:
            TimeoutError: they do not in time, or the job has ended.
        """
        until = time.monotonic() + seconds
        while not set(ranks) <= self.notes(name).keys():
            if time.monotonic() > until or self.process.poll() is not None:
                missing = sorted(set(ranks) - self.notes(name).keys())
                raise TimeoutError(f"ranks {missing} are not {name!r} after {seconds:g} s, or the job has ended")
            time.sleep(0.05)

    def wait_until_ready(self, seconds: float) -> None:
        everybody = set(range(self.ranks))
        self.wait_for("ready", everybody, seconds)
        self.wait_for("process", everybody, 10)
        self._ranks = {rank: Process.of(number) for rank, number in self.notes("process").items()}

    def watch_until_ended(self, survivors: Collection[int], until: float, launcher_too: bool) -> None:
        """Notes when each survivor and the launcher end; returns when all have, or at `until` (monotonic seconds).

        A launcher that may stay gets a few seconds more than the survivors.
        """
        while time.monotonic() < until:
            now = time.monotonic()
            for rank, process in self._ranks.items():
                if rank not in self.ended_at and not process.alive:
                    self.ended_at[rank] = now
            if self.launcher_ended_at is None and self.process.poll() is not None:
                self.launcher_ended_at = now
            if set(survivors) <= self.ended_at.keys():
                if self.launcher_ended_at is not None:
                    return
                until = until if launcher_too else min(until, now + _LAUNCHER_SECONDS)
            time.sleep(0.02)

    def sweep(self, seconds: float) -> list[str]:
        """Waits until nothing of the job runs; kills what is left and returns what that was."""
        until = time.monotonic() + seconds
        while (left := marked(self.mark)) and time.monotonic() < until:
            time.sleep(0.05)
        words = [process.words for process in left]
        self.end()
        return words

    def thaw(self) -> None:
        """Lets go on what was frozen."""
        send(marked(self.mark), signal.SIGCONT)

    def end(self) -> None:
        """Kills all that is left."""
        for _ in range(100):
            left = marked(self.mark)
            if not left:
                break
            send(left, signal.SIGKILL)
            time.sleep(0.05)
        self.process.wait()


def start(
    place: Place, words: list[str], environment: Mapping[str, str], folder: Path, mark: str, ranks: int, victim: int
) -> Running:
    """Starts a launcher with its output in `folder`/output."""
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            words, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    return Running(process, place, folder, mark, ranks, victim)

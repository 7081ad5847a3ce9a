"""A case: what happens to which job, and what was promised; and what was found when it ran."""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.faults import Fault
from tests.faults.places import ELASTIC, MPIRUN, Launcher
from tests.faults.running import Running

__all__ = ["ENDED_SECONDS", "NOTICED_SECONDS", "Case", "Found", "judge"]

NOTICED_SECONDS = 15.0
ENDED_SECONDS = 30.0
_MPI_ABORT = 14  # Open MPI, when a connection ends
_NEVER = float("inf")


@dataclass(frozen=True)
class Case:
    """A failure and its promise.

    Attributes:
        name: unique.
        promise: in words, for the table.
        fault: what is done once all ranks are at work.
        program: script below tests/faults and its words after FOLDER.
        nodes: 0 is this machine, otherwise that many of the lab.
        ranks: number of processes.
        victim: the rank to which it happens.
        pretended: nodes that one machine pretends to be, with equal shares of the ranks.
        goes_on: whether nothing is lost: all ranks end well, with right results.
        noticed: seconds until every survivor has the error in Python, or trains in a new session (ELASTIC); None where
            Python is not asked, or is killed.
        ended: seconds until every survivor has ended.
        message: pattern that each survivor's error, or else the output, must have; {0} is the victim.
        codes: exit codes of survivors that are right; None: any but 0.
        victim_survives: whether what happens to it is no end.
        check: looks further; returns what is not as promised.
        needs_root: whether it needs a disk of its own.
        over_tcp: attributes that differ where the ranks do without MPI.
        repeat: how often it runs, each time with another victim and at another moment.
    """

    name: str
    promise: str
    fault: Fault
    program: tuple[str, ...] = ("worker.py", "steps")
    nodes: int = 0
    ranks: int = 4
    victim: int = 2
    pretended: int = 0
    launcher: Launcher = MPIRUN
    goes_on: bool = False
    noticed: float | None = NOTICED_SECONDS
    ended: float = ENDED_SECONDS
    launcher_ended: float | None = ENDED_SECONDS
    message: str = ""
    codes: tuple[int, ...] | None = None
    victim_survives: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    start_seconds: float = 90.0
    check: Callable[[Running], list[str]] | None = None
    needs_root: bool = False
    over_tcp: Mapping[str, Any] = field(default_factory=dict)
    repeat: int = 1

    @property
    def world(self) -> str:
        if self.nodes:
            return f"{self.nodes} nodes x {self.ranks // self.nodes}"
        return f"{self.ranks} ranks" + (f", {self.pretended} pretended nodes" if self.pretended else "")

    def again(self, number: int) -> Case:
        """Repetition `number`, from 1: with another victim."""
        return dataclasses.replace(self, victim=(self.victim + number - 1) % self.ranks) if self.repeat > 1 else self


@dataclass
class Found:
    """What happened. Times are seconds after the fault.

    Attributes:
        noticed: by survivor, when it had the error.
        ended: by survivor.
        launcher: when it ended, None: it had to be killed.
        codes: by rank, as a shell would say; "killed" where the launcher killed the rank with all around it.
        launcher_code: of the launcher.
        message: a survivor's first line.
        left: what of ours was there after the end, and after the next start.
        left_by_others: what Open MPI left.
        wrong: what was not as promised.
    """

    noticed: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float | None] = field(default_factory=dict)
    launcher: float | None = None
    codes: dict[int, int | str] = field(default_factory=dict)
    launcher_code: int | None = None
    message: str = ""
    left: list[str] = field(default_factory=list)
    left_by_others: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    output: str = ""

    @property
    def all_ended(self) -> float:
        """When the last survivor had ended; infinity: it had not."""
        return max(map(_or_never, self.ended.values()), default=0.0)

    def codes_text(self) -> str:
        ranks = " ".join(str(self.codes[rank]) for rank in sorted(self.codes))
        return f"ranks {ranks}; launcher {'none' if self.launcher_code is None else self.launcher_code}"


def judge(case: Case, found: Found, survivors: set[int], sayings: Mapping[int, str]) -> list[str]:
    """What was not as promised, in words."""
    wrong: list[str] = []
    late = [rank for rank in survivors if _or_never(found.ended[rank]) > case.ended]
    if late:
        wrong.append(f"rank(s) {late} had not ended after {case.ended:g} s")
    if case.launcher_ended is not None and _or_never(found.launcher) > case.launcher_ended:
        wrong.append(f"{case.launcher.name} had not ended after {case.launcher_ended:g} s")
    if case.goes_on:
        bad = {rank: found.codes.get(rank) for rank in survivors if found.codes.get(rank) != 0}
        wrong += [f"not all ended well: {bad}"] if bad else []
        wrong += [f"{case.launcher.name} ended with {found.launcher_code}"] if found.launcher_code else []
        if case.launcher == ELASTIC:
            late = [rank for rank in survivors if found.noticed.get(rank, _NEVER) > (case.noticed or _NEVER)]
            wrong += [f"rank(s) {late} did not train after {case.noticed:g} s"] if late else []
        return wrong + _left(found)
    if case.noticed is not None:
        for rank, seconds in sorted(found.noticed.items()):
            if seconds > case.noticed:
                wrong.append(f"rank {rank} noticed after {seconds:.1f} s")
        if not found.noticed:
            wrong.append("no survivor got an error")
        if aborted := [rank for rank in survivors if found.codes.get(rank) == _MPI_ABORT and rank not in found.noticed]:
            wrong.append(f"MPI ended rank(s) {aborted} before they could report anything")
    wrong += _wrong_codes(case, found, survivors) + _wrong_words(case, found, sayings)
    return wrong + _left(found)


def _wrong_codes(case: Case, found: Found, survivors: set[int]) -> list[str]:
    if case.codes is None:
        bad = [rank for rank in survivors if found.codes.get(rank) == 0]
    else:
        bad = [rank for rank in survivors if found.codes.get(rank) not in case.codes]
    wrong = [f"rank(s) {bad} ended with {[found.codes.get(rank) for rank in bad]}"] if bad else []
    killed = found.launcher_code == -signal.SIGKILL
    if case.codes is None and found.launcher_code == 0 and not killed:
        wrong.append(f"{case.launcher.name} ended with 0")
    return wrong


def _wrong_words(case: Case, found: Found, sayings: Mapping[int, str]) -> list[str]:
    if not case.message:
        return []
    wanted = case.message.format(case.victim)
    bad = [rank for rank, text in sayings.items() if not re.search(wanted, text)]
    if bad:
        return [f"rank {bad[0]} says {sayings[bad[0]]!r}, expected {wanted!r}"]
    if not sayings and not re.search(wanted, found.output):
        return [f"{wanted!r} is not in the output"]
    return []


def _left(found: Found) -> list[str]:
    return [f"left behind: {what}" for what in found.left]


def _or_never(seconds: float | None) -> float:
    return _NEVER if seconds is None else seconds

"""Runs a case once: starts the job, waits until all ranks are at work, does it harm, and looks at what follows."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.lab import Lab
from tests.faults.case import Case, Found, judge
from tests.faults.places import ELASTIC, Here, InLab
from tests.faults.processes import MARK
from tests.faults.running import Place, Running, start
from tests.support.mpirun import environment, free_port

__all__ = ["conduct"]

FOLDER = Path(__file__).resolve().parent
_MPIRUNS = ("prterun", "prted", "sh")  # mpirun, its daemons, and what stands in for ssh
_MORE_SECONDS = 30.0  # beyond a promise, to see how late it is
_QUIET_SECONDS = 5.0  # for the last processes after the launcher has ended


def conduct(case: Case, lab: Lab | None = None, moment: float = 0.0, tcp: bool = False) -> Found:
    """Runs the case in a folder of its own, with the lab's nodes where it wants them.

    The fault comes `moment` seconds after all ranks are at work. With `tcp` the ranks do without MPI.
    """
    with tempfile.TemporaryDirectory(prefix="smddp_faults_") as path:
        folder = Path(path)
        (folder / "tmp").mkdir()
        with _place(case, folder, lab) as place:
            running = _start(case, place, folder, tcp)
            try:
                return _see(case, running, place, moment)
            finally:
                running.end()


@contextlib.contextmanager
def _place(case: Case, folder: Path, lab: Lab | None) -> Iterator[Place]:
    if case.nodes:
        assert lab is not None
        with InLab(lab, case.nodes) as nodes:
            yield nodes
    else:
        with Here(folder) as here:
            yield here


def _start(case: Case, place: Place, folder: Path, tcp: bool = False) -> Running:
    mark = uuid.uuid4().hex
    variables = {"TMPDIR": str(folder / "tmp"), MARK: mark, **place.environment(), **case.environment}
    script, *words = case.program
    command = [sys.executable, "-I", "-S", str(FOLDER / "supervisor.py"), str(folder)]
    if (case.pretended or tcp) and case.launcher != ELASTIC:
        share = case.ranks // max(case.pretended, place.nodes)
        coordinator = f"{place.address}:{free_port()}" if tcp else "-"
        command += [sys.executable, "-I", "-S", str(FOLDER / "pretend.py"), str(share), coordinator]
    command += [sys.executable, str(FOLDER / script), str(folder), *words, str(case.victim)]
    line = place.words(case.launcher, case.ranks, command)
    return start(place, line, environment(variables), folder, mark, case.ranks, case.victim)


def _see(case: Case, running: Running, place: Place, moment: float) -> Found:
    try:
        running.wait_until_ready(case.start_seconds)
    except TimeoutError as error:
        return Found(wrong=[f"did not start: {error}"], output=running.output)
    time.sleep(moment)
    begin, begin_wall = time.monotonic(), time.time()
    lost = case.fault(running)
    if acted := running.notes("acted"):  # the program did it, before we looked
        earlier = begin_wall - min(acted.values())
        begin, begin_wall = begin - earlier, begin_wall - earlier
    survivors = set(range(case.ranks)) - (set() if case.victim_survives else lost)
    if case.goes_on:
        time.sleep(1.0)
        (running.folder / "stop").touch()
    longest = max(case.ended, case.launcher_ended or 0.0) + _MORE_SECONDS
    running.watch_until_ended(survivors, begin + longest, case.launcher_ended is not None)
    return _found(case, running, place, survivors, begin, begin_wall)


def _found(case: Case, running: Running, place: Place, survivors: set[int], begin: float, begin_wall: float) -> Found:
    found = Found()
    said = running.notes("said")
    found.noticed = {rank: said[rank]["at"] - begin_wall for rank in sorted(said) if rank in survivors}
    found.ended = {rank: running.ended_at[rank] - begin if rank in running.ended_at else None for rank in survivors}
    found.launcher = running.launcher_ended_at - begin if running.launcher_ended_at is not None else None
    found.launcher_code = running.process.poll()
    if isinstance(place, InLab):
        for node in range(place.nodes):
            place.heal(node)
    running.thaw()
    processes = [_program(words) for words in running.sweep(_QUIET_SECONDS)]
    hung = processes if case.launcher_ended is None else []
    theirs = [what for what in hung if what.split()[1] in _MPIRUNS]
    found.left = _counted(what for what in processes if what not in theirs)
    ends = running.notes("end")
    found.codes = {rank: ends[rank]["code"] if rank in ends else "killed" for rank in range(case.ranks)}
    left = [f"shared memory {name}" for name in place.shared_memory()]
    left += [f"file {name}" for name in _files(running.folder / "tmp")]
    if any("smddp" in what for what in left):
        left = _after_next_start(case, place, running.folder)
    found.left += [what for what in left if "smddp" in what]
    found.left_by_others = _counted(theirs) + _counted(_without_numbers(what) for what in left if "smddp" not in what)
    found.output = running.output
    sayings = {rank: said[rank]["text"] for rank in sorted(said) if rank in survivors}
    found.message = _first_line(sayings, found.output)
    found.wrong = judge(case, found, survivors, sayings)
    found.wrong += case.check(running) if case.check else []
    found.wrong += [f"rank {rank} had a wrong sum" for rank in running.notes("wrong")]
    return found


def _after_next_start(case: Case, place: Place, before: Path) -> list[str]:
    """What is there still when the same user has started another job and that has ended."""
    folder = before / "next"
    for path in (folder, folder / "tmp"):
        path.mkdir()
    (folder / "stop").touch()
    running = _start(dataclasses.replace(case, program=("worker.py", "steps"), environment={}), place, folder)
    try:
        running.wait_for("end", set(range(case.ranks)), case.start_seconds)
    except TimeoutError:
        pass  # it has ended already
    running.sweep(_QUIET_SECONDS)
    return [f"shared memory {name}" for name in place.shared_memory()]


def _program(words: str) -> str:
    """Our script's name, or the program's."""
    ours = re.findall(r"(smddp_tf\.run[.\w]*|\w+\.py)\b", words)
    return f"process {ours[-1] if ours and 'prte' not in words.split()[0] else Path(words.split()[0]).name}"


def _without_numbers(text: str) -> str:
    """The kind of a file of Open MPI's: its folder, or its name up to the first dot."""
    kind, name = text.rsplit(" ", 1)
    return f"{kind} {re.split('[./]', name.split(':')[-1])[0]}..."


def _counted(texts: Iterable[str]) -> list[str]:
    return [f"{count} {text}" for text, count in sorted(collections.Counter(texts).items())]


def _first_line(sayings: dict[int, str], output: str) -> str:
    """What a survivor's error says, without TensorFlow's frame around it; else our first line in the output."""
    for text in sayings.values():
        lines = [re.sub(r"^.*\{\{.*?\}\} ", "", line) for line in text.strip().splitlines()]
        return next((line for line in lines if re.search(r"\b[Rr]anks? \d", line)), lines[0])
    lines = [line.strip() for line in output.splitlines() if "smddp_tf [rank" in line]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "")


def _files(folder: Path) -> list[str]:
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)

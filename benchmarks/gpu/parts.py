"""The parts of a run: each a program of its own with a time limit, so that one that fails or hangs costs no other."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.place import Place

__all__ = ["Part", "Runner", "sanitizer_errors"]

LEAST = 8.0  # seconds; a part that has less is left out
TAIL = 1500  # characters of a failed part's output that go into the report

Report = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One program.

    Attributes:
        name: for tables and logs.
        seconds: the most it may take.
        arguments: of Python.
        ranks: started by mpirun, each writes into a folder; 0: one program, which writes into a file.
        stage: SMDDP_GPU_STAGE of the ranks.
        before: words in front of Python, such as a tool that watches it.
        log_of_tool: file in which that tool counts errors.
        variables: more of the environment.
    """

    name: str
    seconds: float
    arguments: tuple[str, ...]
    ranks: int = 0
    stage: str = ""
    before: tuple[str, ...] = ()
    log_of_tool: str = ""
    variables: tuple[tuple[str, str], ...] = ()


class Runner:
    """Runs parts until the time is over, and keeps the report's file complete after each."""

    def __init__(self, place: Place, report: Report, until: float, save: Callable[[], None]) -> None:
        self.place, self.report, self.until, self.save = place, report, until, save

    def left(self) -> float:
        return self.until - time.monotonic()

    def note(self, name: str, state: str, note: str, seconds: float = 0.0) -> None:
        self.report["parts"][name] = {"state": state, "seconds": seconds, "note": note}
        self.save()
        print(f"[{self.left():4.0f} s left] {name}: {state} ({seconds:.0f} s) {note}", flush=True)

    def run(self, part: Part) -> bool:
        """True when it ended with 0."""
        if self.left() < LEAST:
            self.note(part.name, "left out", "no time left")
            return False
        begin = time.monotonic()
        limit = min(part.seconds, self.left())
        try:
            state, note = self._run(part, limit)
        except Exception as error:  # a part costs nothing but itself
            state, note = "failed", f"{type(error).__name__}: {error}"
        answer = self._answer(part)
        absent = [one["absent"] for one in [answer, *answer.get("ranks", [])] if one.get("absent")]
        if state == "ok" and absent:
            state, note = "left out", absent[0]
        self.note(part.name, state, note, time.monotonic() - begin)
        entry = self.report["parts"][part.name]
        entry["answer"] = answer
        if part.ranks:
            entry.update(expected_ranks=part.ranks, stage=part.stage, way=way_taken(self.log(part.name)))
        self.save()
        return state == "ok"

    def _run(self, part: Part, limit: float) -> tuple[str, str]:
        answer = self._answer_path(part)
        (answer if part.ranks else answer.parent).mkdir(parents=True, exist_ok=True)
        for old in [*answer.glob("*.json")] if part.ranks else [answer]:
            old.unlink(missing_ok=True)
        # The program ends by itself a moment before it would be ended, so that its answer is complete.
        options = ["--answer", str(answer), "--seconds", f"{max(3.0, 0.8 * limit - 3.0):.0f}"]
        launcher = self.place.launcher(part.ranks) if part.ranks else []
        command = [*launcher, *part.before, self.place.python, *part.arguments, *options]
        stage = {"SMDDP_GPU_STAGE": part.stage, "SMDDP_LOG_LEVEL": "info"} if part.stage else {}
        log = self.log(part.name)
        code = run_logged(command, log, limit, self.place.environment(**stage, **dict(part.variables)), self.place.site)
        if code == 0:
            return "ok", ""
        state = "out of time" if code is None else f"failed with {code}"
        return state, tail(log)

    def log(self, name: str) -> Path:
        return self.place.logs / f"{name.replace(' ', '-')}.log"

    def _answer_path(self, part: Part) -> Path:
        name = part.name.replace(" ", "-")
        return self.place.folder / "answers" / (name if part.ranks else f"{name}.json")

    def _answer(self, part: Part) -> Report:
        path = self._answer_path(part)
        if part.ranks:
            files = [path / f"{rank}.json" for rank in range(part.ranks)]
            return {"ranks": [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]}
        found: Report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if part.log_of_tool:
            log = Path(part.log_of_tool)
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            found["errors"] = sanitizer_errors(text)
            found["tool"] = text[-TAIL:]
        return found


def run_logged(command: list[str], log: Path, limit: float, environment: dict[str, str], folder: Path) -> int | None:
    """The exit code; None when it was ended with all it had started because the time was over."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as out:
        out.write(" ".join(command) + "\n")
        out.flush()
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            end_group(process)
            return None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to its group, and SIGKILL 3 s later. mpirun ends its ranks on the first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(3.0)
        except subprocess.TimeoutExpired:
            continue


def way_taken(log: Path) -> str:
    """The stage that the ranks say they agreed on; "" when they had nothing to agree on (`host`)."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    found = re.search(r"gradients on GPUs use the method '(\w+)'", text)
    return found[1] if found else ""


def tail(log: Path) -> str:
    """The end of what a program printed."""
    return log.read_text(encoding="utf-8", errors="replace")[-TAIL:].strip()


def sanitizer_errors(text: str) -> int | None:
    """The errors that compute-sanitizer counted in all processes; None when it wrote no summary."""
    errors = [int(count) for count in re.findall(r"ERROR SUMMARY: (\d+) error", text)]
    hazards = re.findall(r"RACECHECK SUMMARY: (\d+) hazards? displayed", text)
    counted = errors + [int(count) for count in hazards]
    return sum(counted) if counted else None

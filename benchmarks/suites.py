"""What is measured on one node: all candidates of a case in turns, so that a busy moment of the machine hits all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.cases import STEPS, Case
from benchmarks.findings import NODE, Findings, Row
from benchmarks.jobs import Job, JobError
from benchmarks.measure import Timing
from benchmarks.peers import CANDIDATES, Candidate
from benchmarks.shapes import MODELS, model_bytes

__all__ = ["FULL", "QUICK", "Effort", "measure_cost", "measure_node"]

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Effort:
    """How long to measure: turns per case, seconds for each candidate of a case; which jobs, sizes and models."""

    turns: int
    seconds: float
    ranks: tuple[int, ...]
    array_bytes: tuple[int, ...]
    models: tuple[str, ...] = tuple(MODELS)
    doors: tuple[str, ...] = ("array", "eager", "plus", "function", "list", "named", "grouped", *STEPS)


QUICK = Effort(3, 0.25, (2, 4), (4, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB), ("ResNet-50", "BERT-base"))
FULL = Effort(
    5, 0.4, (1, 2, 4), (4, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, *(n * MIB for n in (1, 4, 16, 64, 256)))
)


def array_cases(effort: Effort, ranks: int) -> list[Case]:
    return [Case("array", size) for size in (effort.array_bytes if ranks > 1 else (4, MIB, 64 * MIB))]


def tensorflow_cases(effort: Effort, ranks: int) -> list[Case]:
    """Single tensors; then each model as a list, beside a flat buffer of the model's bytes."""
    if ranks == 1:
        return []
    largest = 256 * MIB if ranks == 2 else 64 * MIB
    cases = [
        *(Case("eager", size) for size in (4, 64 * KIB, MIB)),
        Case("plus", 4),
        *(Case("function", size) for size in (4, MIB, 16 * MIB, 64 * MIB, 256 * MIB) if size <= largest),
    ]
    doors = ("list", "named", "grouped", *STEPS[: 4 if ranks == 2 else 2])
    for model in effort.models if ranks == 2 else effort.models[:2]:  # as the targets
        size = model_bytes(model)
        cases += [Case("function", size), *(Case(door, size, model) for door in doors)]
    return cases


def measure_node(effort: Effort, names: Iterable[str], say: Callable[[str], None], findings: Findings) -> None:
    """Measures every case on this machine with each number of ranks. What fails is noted and left out."""
    candidates = [CANDIDATES[name] for name in names]
    for ranks in effort.ranks:
        for what, cases in (("arrays", array_cases(effort, ranks)), ("TensorFlow", tensorflow_cases(effort, ranks))):
            cases = [case for case in cases if case.door in effort.doors]
            taking_part = [one for one in candidates if any(case.door in one.doors for case in cases)]
            if taking_part:
                say(f"{what}, {ranks} rank(s): {', '.join(one.name for one in taking_part)}")
                _measure_cases(cases, taking_part, ranks, effort, findings)


def measure_cost(say: Callable[[str], None], findings: Findings) -> None:
    """What our engine takes beside the user's arrays, see `Smddp.cost`."""
    say("cost: memory and idle CPU")
    job = Job(CANDIDATES["smddp_tf"], 2)
    with contextlib.suppress(JobError), job:
        findings.cost = job.call("cost", sizes=[n * MIB for n in (64, 256, 1024)], idle_seconds=3.0)[0]
    if job.failure:
        findings.notes.append(job.failure)


def _measure_cases(
    cases: list[Case], candidates: list[Candidate], ranks: int, effort: Effort, findings: Findings
) -> None:
    jobs = [Job(candidate, ranks) for candidate in candidates]
    with contextlib.ExitStack() as stack:
        for job in jobs:
            with contextlib.suppress(JobError):
                stack.enter_context(job)
                findings.about[job.candidate.name] = job.about
        for case in cases:
            findings.rows += _measure_case(case, [job for job in jobs if case.door in job.candidate.doors], effort)
    findings.notes += [job.failure for job in jobs if job.failure]


def _measure_case(case: Case, jobs: list[Job], effort: Effort) -> list[Row]:
    turns = [_Turns(job) for job in jobs]
    for turn in turns:
        turn.prepare(case, effort)
    for _ in range(effort.turns):
        for turn in turns:
            turn.take()
    return [turn.row(case) for turn in turns if turn.forget()]


class _Turns:
    """One candidate's part in a case. A candidate that fails stays out from then on; its job knows why."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._wrong = self._repetitions = 0
        self._seconds: list[float] = []

    def prepare(self, case: Case, effort: Effort) -> None:
        with contextlib.suppress(JobError):
            answers = self._job.call("prepare", case=case.as_json())
            self._wrong = sum(answer["wrong"] for answer in answers)
            once = max(max(answer["seconds"] for answer in answers), 1e-6)
            self._repetitions = max(1, min(200, int(effort.seconds / effort.turns / once)))

    def take(self) -> None:
        with contextlib.suppress(JobError):
            self._seconds += self._job.time(self._repetitions)

    def forget(self) -> bool:
        """Frees what was prepared. Returns whether there is a result."""
        with contextlib.suppress(JobError):
            self._job.call("forget")
        return not self._job.failure

    def row(self, case: Case) -> Row:
        timing = Timing.of(self._seconds)
        name = self._job.candidate.name
        return Row(NODE, self._job.ranks, name, case.door, case.bytes, case.model, self._wrong, **vars(timing))

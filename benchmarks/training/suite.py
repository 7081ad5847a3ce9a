"""Who trains, and the turns in which they do: each on 2 ranks and alone on one core."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.findings import TRAINING, Findings, Row
from benchmarks.jobs import Job, JobError
from benchmarks.measure import Timing, slowest_rank
from benchmarks.peers import HOROVOD_LAUNCHER, OPEN_MPI, ROOT_MPI, Candidate
from benchmarks.training.models import MODELS, parameters_of

__all__ = ["BY_NAME", "RANKS", "Effort", "alone", "effort", "measure_training", "not_installed", "wrong_ranks"]

RANKS = 2
APART = "Keras fit"  # trains without the other ranks, beside them


@dataclass(frozen=True)
class Effort:
    """How long to measure: turns of each model, and seconds of a turn."""

    turns: int = 7
    seconds: float = 1.0
    models: tuple[str, ...] = tuple(MODELS)


def effort(quick: bool) -> Effort:
    """As `make bench` measures."""
    return Effort(turns=3, models=("MLP",)) if quick else Effort()


def _candidate(name: str, way: str, environment: str = "", launcher: Sequence[str] = (), **more: Any) -> Candidate:
    variables = {"TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": "1", **(ROOT_MPI if launcher else {})}
    variables.update(more.pop("variables", {}))
    models = tuple(MODELS) if way in ("plain", "optimizer", "distribution") else tuple(MODELS)[:3]
    worker = "benchmarks.training.worker"
    return Candidate(name, way, models, environment, tuple(launcher), variables, worker=worker, **more)


BY_NAME = {
    candidate.name: candidate
    for candidate in (
        _candidate("smddp_tf", "optimizer", "", OPEN_MPI),
        _candidate("smddp_tf, compiled", "compiled", "", OPEN_MPI),
        _candidate("smddp_tf, distribution", "distribution", "", OPEN_MPI),
        _candidate(APART, "plain"),
        _candidate("Keras on JAX", "jax", "jax", stops=False),
        _candidate("PyTorch DDP", "torch", "torch"),
        _candidate("MultiWorkerMirrored", "mirrored", stops=False),
        _candidate(
            "Horovod",
            "horovod",
            "horovod",
            HOROVOD_LAUNCHER,
            variables={"HOROVOD_CPU_OPERATIONS": "MPI", "LD_LIBRARY_PATH": ""},
        ),
    )
}


def alone(candidate: Candidate) -> Candidate:
    """The same as one rank on one core."""
    variables = {**candidate.variables, "SMDDP_BENCH_RANK": "0"}
    return replace(candidate, launcher=("taskset", "-c", "0"), variables=variables)


def not_installed() -> list[str]:
    """Candidates whose environment is missing."""
    return [name for name, candidate in BY_NAME.items() if not candidate.installed]


def wrong_ranks(model: str, answers: Sequence[dict[str, Any]], trains_together: bool) -> int:
    """How many ranks have trained wrongly.

    Args:
        model: what they have trained.
        answers: of the ranks, see `Worker.prepare`.
        trains_together: whether the ranks must have the same weights afterwards, or each other ones.
    """
    first = answers[0]
    return sum(
        not answer["finite"]
        or answer["before"] != first["before"]
        or answer["after"] == answer["before"]
        or answer["parameters"] != parameters_of(model)
        or (place > 0 and (answer["after"] == first["after"]) != trains_together)
        for place, answer in enumerate(answers)
    )


def measure_training(names: Sequence[str], how_long: Effort, say: Callable[[str], None], findings: Findings) -> None:
    """Measures every model with those candidates, on 2 ranks and alone. What fails is noted and left out."""
    candidates = [BY_NAME[name] for name in names if BY_NAME[name].installed]
    say(f"training: {', '.join(one.name for one in candidates)}")
    jobs = [Job(*job) for one in candidates for job in ((one, RANKS), (alone(one), 1))]
    with contextlib.ExitStack() as stack:
        for job in jobs:
            with contextlib.suppress(JobError):
                stack.enter_context(job)
                findings.about[f"training, {job.candidate.name}"] = job.about
        for model in how_long.models:
            say(f"training: {model}")
            findings.rows += _measure(model, [job for job in jobs if model in job.candidate.doors], how_long)
    findings.notes += [job.failure for job in jobs if job.failure]


def _measure(model: str, jobs: list[Job], how_long: Effort) -> list[Row]:
    turns = [_Turns(job) for job in jobs if not job.failure]
    for turn in turns:
        turn.prepare(model, how_long)
    for _ in range(how_long.turns):
        for turn in turns:
            turn.take()
    return [turn.row(model) for turn in turns if not turn.failed]


class _Turns:
    """One job's part in a model. A job that fails stays out from then on."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._wrong = self._steps = 0
        self._seconds: list[float] = []

    @property
    def failed(self) -> bool:
        return bool(self._job.failure)

    def prepare(self, model: str, how_long: Effort) -> None:
        with contextlib.suppress(JobError):
            answers = self._job.call("prepare", model=model)
            together = self._job.candidate.name != APART
            self._wrong = wrong_ranks(model, answers, together)
            self._steps = max(5, min(200, round(how_long.seconds / max(answer["seconds"] for answer in answers))))

    def take(self) -> None:
        with contextlib.suppress(JobError):
            self._seconds += slowest_rank([[seconds] for seconds in self._job.call("train", steps=self._steps)])

    def row(self, model: str) -> Row:
        timing, size = Timing.of(self._seconds), 4 * parameters_of(model)
        name = self._job.candidate.name
        return Row(TRAINING, self._job.ranks, name, "step", size, model, self._wrong, **vars(timing))

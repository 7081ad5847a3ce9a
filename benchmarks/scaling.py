"""Weak scaling over hosts of the lab, beside Horovod: `python -m benchmarks.scaling` (`make bench-scaling`).

Hosts of eight V100s that are joined at 25 Gbit/s, slowed down: the computation is an op that waits, as long as the
published throughput of one V100 says; what a host sends is what its eight would send, for gradients are added inside a
host first. The lab's links are 125 times as slow, and gradients are smaller by a factor that is chosen for each model
so that a step takes seconds; times and bucket sizes are scaled alike. So the ratio of communication to computation, the
number of gradients and of buckets are those of the real job.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import shapes
from benchmarks.findings import machine, results_path
from benchmarks.lab import Lab, LabError, why_not
from benchmarks.measure import Timing, slowest_rank, wire_bound
from benchmarks.peers import ENVIRONMENTS, ROOT
from benchmarks.report import MARKS, console_of
from benchmarks.steps import fraction_hidden
from tests.native_module import core

__all__ = ["CANDIDATES", "MODELS", "Candidate", "Model", "Row", "buckets_in_lab", "schedule_bound", "verdicts"]

HOSTS = (1, 2, 4, 8)
LAB_RATE, REAL_RATE = 200e6, 25e9  # bits per second
FORWARD_SHARE = 1 / 3  # the backward pass multiplies twice where the forward pass does once
CASE_SECONDS = 30.0
HOROVOD_BUCKET_BYTES = 128 * 2**20  # Horovod's default
# The goals: throughput over Horovod's; speed-up over the lower of the two bounds; a step over its longer part.
OVER_HOROVOD, OF_BOUND, OF_LONGER_PART = 1.2, 0.9, 1.1
COMPILED_HIDDEN = 0.6  # of the shorter part, where XLA compiles the step
COMPILED = "smddp_tf, compiled"


@dataclass(frozen=True)
class Model:
    """A model as one V100 trains it in mixed precision, with float32 gradients.

    Attributes:
        gradients: shapes, in the order of the forward pass.
        work: how long each takes in the backward pass; only the proportions count.
        compute: seconds of a step, forward and backward.
        smaller: by how much the gradients are smaller in the lab.
    """

    gradients: list[tuple[int, ...]]
    work: list[float]
    compute: float
    smaller: int

    @property
    def slower(self) -> float:
        """How much longer everything takes in the lab."""
        return REAL_RATE / LAB_RATE / self.smaller

    @property
    def elements(self) -> list[int]:
        """Of each gradient in the lab."""
        return [max(1, round(math.prod(shape) / self.smaller)) for shape in self.gradients]

    @property
    def lab_seconds(self) -> float:
        """A step's computation in the lab."""
        return self.compute * self.slower

    @property
    def ready(self) -> list[float]:
        """When each gradient is there in the lab, in seconds after the step began; the last layer's are the first."""
        done, moments = 0.0, []
        for work in reversed(self.work):
            done += work
            moments.append(self.lab_seconds * (FORWARD_SHARE + (1 - FORWARD_SHARE) * done / sum(self.work)))
        return moments[::-1]


def _dense_work(gradients: list[tuple[int, ...]], embeddings: int = 0) -> list[float]:
    """Each weight is used once for every token; embeddings are looked up."""
    return [0.0 if place < embeddings else float(math.prod(shape)) for place, shape in enumerate(gradients)]


# NVIDIA's DeepLearningExamples, tables of the DGX-1 in mixed precision: BERT-large for TensorFlow, sequences of 128,
# 64 a step and GPU: 168.63 a second; ResNet-50 v1.5 with XLA, 256 images a step and GPU: 1,270 a second. The MLP has
# no such table: 16,384 samples at the multiplications per second that BERT-large reaches.
BERT_SECONDS = 64 / 168.63
RESNET_SECONDS = 256 / 1270
_TOKENS, _SAMPLES = 64 * 128, 16384


def _weights(gradients: list[tuple[int, ...]]) -> int:
    return sum(map(math.prod, gradients))


MLP_SECONDS = BERT_SECONDS * (_SAMPLES * _weights(shapes.mlp7())) / (_TOKENS * _weights(shapes.bert_large()))

MODELS = {
    "ResNet-50": Model(shapes.resnet50(), shapes.resnet50_work(), RESNET_SECONDS, 8),
    "BERT-large": Model(shapes.bert_large(), _dense_work(shapes.bert_large(), embeddings=3), BERT_SECONDS, 24),
    "MLP of 7 layers": Model(shapes.mlp7(), _dense_work(shapes.mlp7()), MLP_SECONDS, 4),
}


@dataclass(frozen=True)
class Candidate:
    """A library and how it is started.

    Attributes:
        library: module with Horovod's API.
        python: interpreter that has it.
        mpirun_arguments: more of them.
        variables: environment variables.
        compiled: whether XLA compiles the step.
        bucket_variable: the one that says how large buckets are.
        bucket_bytes: its default for that model, scaled.
    """

    library: str
    python: Path
    bucket_variable: str
    bucket_bytes: Callable[[Model], int]
    mpirun_arguments: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    compiled: bool = False


def buckets_in_lab(model: Model) -> int:
    """The engine's choice for the whole gradients of up to 8 hosts, scaled."""
    whole = [math.prod(shape) for shape in model.gradients]
    return int(core().bucket_bytes_for(whole, "", max(HOSTS))) // model.smaller


def _horovod(mpirun_arguments: str = "") -> Candidate:
    return Candidate(
        "horovod.tensorflow",
        ENVIRONMENTS / "horovod" / "bin" / "python",
        "HOROVOD_FUSION_THRESHOLD",
        lambda model: HOROVOD_BUCKET_BYTES // model.smaller,
        mpirun_arguments,
        {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LD_LIBRARY_PATH": "", "HOROVOD_CPU_OPERATIONS": "MPI"},
    )


CANDIDATES = {
    "smddp_tf": Candidate("smddp_tf", Path(sys.executable), "SMDDP_BUCKET_BYTES", buckets_in_lab),
    COMPILED: Candidate("smddp_tf", Path(sys.executable), "SMDDP_BUCKET_BYTES", buckets_in_lab, compiled=True),
    "Horovod": _horovod(),
    "Horovod, btl_tcp_flags 1": _horovod("--mca btl_tcp_flags 1"),
}


@dataclass(frozen=True)
class Row:
    """One library on so many hosts.

    Attributes:
        compute: seconds of the waiting computation; the same for all hosts (weak scaling).
        together: seconds of a training step: of the slowest host, over the repetitions.
        communication: median seconds of reducing gradients that are all there.
        wire: seconds that the links need at least for the gradients.
        schedule: the least seconds of a step in which no gradient is sent before it is there.
        wrong: elements of the reduced gradients that were wrong, on all hosts.
    """

    model: str
    hosts: int
    candidate: str
    compute: float
    together: Timing
    communication: float
    wire: float
    schedule: float
    wrong: int

    @property
    def speedup(self) -> float:
        return self.hosts * self.compute / self.together.median

    @property
    def hidden(self) -> float:
        if self.hosts == 1:
            return math.nan
        return fraction_hidden(self.compute, self.communication, self.together.median)


def schedule_bound(ready: Sequence[float], seconds: Sequence[float], compute: float) -> float:
    """The end of a step whose link sends each gradient as soon as it is there and the link is free."""
    end = 0.0
    for moment, sending in sorted(zip(ready, seconds)):
        end = max(end, moment) + sending
    return max(end, compute)


def verdicts(rows: list[Row]) -> list[tuple[str, float, bool]]:
    """Each goal with what was measured."""
    found = []
    for row in (row for row in rows if row.candidate == COMPILED and row.hosts > 1):
        place = f"{row.model}, {row.hosts} hosts, compiled"
        found.append((f"{place}: hidden >= {COMPILED_HIDDEN}", row.hidden, row.hidden >= COMPILED_HIDDEN))
    for row in (row for row in rows if row.candidate == "smddp_tf" and row.hosts > 1):
        place = f"{row.model}, {row.hosts} hosts"
        bound = min(row.hosts, row.hosts * row.compute / row.wire)
        share = row.speedup / bound
        found.append((f"{place}: speed-up over min(hosts, wire) >= {OF_BOUND}", share, share >= OF_BOUND))
        longer = row.together.median / max(row.compute, row.communication)
        found.append((f"{place}: step over its longer part <= {OF_LONGER_PART}", longer, longer <= OF_LONGER_PART))
        here = [one for one in rows if (one.model, one.hosts) == (row.model, row.hosts)]
        peers = [one for one in here if one.candidate not in (COMPILED, row.candidate)]
        if peers and row.hosts >= 4:
            ratio = min(one.together.median for one in peers) / row.together.median
            found.append((f"{place}: throughput over Horovod's best >= {OVER_HOROVOD}", ratio, ratio >= OVER_HOROVOD))
    return found


def op_library(python: Path, compiled: bool) -> Path:
    """The waiting ops, or the custom call that waits, compiled for the TensorFlow of that interpreter."""
    ask = "import json, tensorflow as tf; print(json.dumps([tf.__version__, tf.sysconfig.get_compile_flags(), "
    ask += "tf.sysconfig.get_link_flags()]))"
    asked = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True, timeout=120)
    version, compile_flags, link_flags = json.loads(asked.stdout.splitlines()[-1])
    name = "waiting_compute_xla" if compiled else "waiting_compute"
    source = ROOT / "benchmarks" / "native" / f"{name}.cc"
    library = ENVIRONMENTS / f"{name}-{version}.so"
    link_flags += ["-l:libtensorflow_cc.so.2"] if compiled else []
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        library.parent.mkdir(exist_ok=True)
        command = ["c++", "-w", "-O2", "-shared", "-fPIC", source, *compile_flags, *link_flags, "-o", library]
        subprocess.run(command, check=True, timeout=600)
    return library


def measure(lab: Lab, hosts: int, model: str, name: str) -> Row:
    """One library in a lab that is up."""
    candidate, what = CANDIDATES[name], MODELS[model]
    elements, ready = what.elements, what.ready
    sending = [wire_bound(4 * count, hosts, LAB_RATE) for count in elements]
    schedule = schedule_bound(ready, sending, what.lab_seconds)
    repetitions = max(3, min(9, int(CASE_SECONDS / (schedule + sum(sending)))))
    forward = FORWARD_SHARE * what.lab_seconds
    work = {"elements": elements, "ready": ready, "forward": forward, "repetitions": repetitions}
    work["compiled"] = candidate.compiled
    answers = lab.run(
        1,
        candidate.mpirun_arguments,
        "benchmarks.scaling_worker",
        *(candidate.library, str(op_library(candidate.python, candidate.compiled)), "{folder}", json.dumps(work)),
        python=candidate.python,
        variables={**candidate.variables, candidate.bucket_variable: str(candidate.bucket_bytes(what))},
    )
    return Row(
        model,
        hosts,
        name,
        compute=what.lab_seconds,
        together=Timing.of(slowest_rank([answer["together"] for answer in answers])),
        communication=Timing.of(slowest_rank([answer["communication"] for answer in answers])).median,
        wire=sum(sending),
        schedule=schedule,
        wrong=sum(answer["wrong"] for answer in answers),
    )


def measure_all(
    models: Sequence[str], hosts: Sequence[int], candidates: Sequence[str], say: Callable[[str], None]
) -> tuple[list[Row], list[str]]:
    """Rows, and what failed."""
    rows, notes = [], []
    for count in hosts:
        with Lab(count, round(LAB_RATE / 1e6)) as lab:
            for model in models:
                for name in candidates:
                    say(f"{model}, {count} hosts: {name}")
                    try:
                        rows.append(measure(lab, count, model, name))
                    except LabError as error:
                        notes.append(f"{model}, {count} hosts, {name}: {error}")
    return rows, notes


def table(rows: list[Row]) -> Table:
    made = Table(title="weak scaling, seconds in the lab; speed-up over one host")
    columns = ("model", "hosts", "library", "compute", "wire", "step", "p10-p90", "least", "alone", "hidden")
    for column in (*columns, "speed-up", "efficiency", "wrong"):
        made.add_column(column, justify="left" if column in ("model", "library") else "right")
    for row in sorted(rows, key=lambda row: (row.model, row.hosts)):
        spread = f"{row.together.p10:.2f}-{row.together.p90:.2f}"
        cells = [f"{row.compute:.2f}", f"{row.wire:.2f}", f"{row.together.median:.2f}", spread, f"{row.schedule:.2f}"]
        cells += [f"{row.communication:.2f}", f"{row.hidden:.0%}", f"{row.speedup:.2f}"]
        efficiency = f"{row.speedup / row.hosts:.0%}"
        made.add_row(row.model, str(row.hosts), row.candidate, *cells, efficiency, str(row.wrong))
    return made


def show(rows: list[Row], notes: list[str], console: Console) -> None:
    console.print(table(rows))
    goals = Table(title="goals")
    for column in ("goal", "measured", ""):
        goals.add_column(column)
    for what, measured, passed in verdicts(rows):
        goals.add_row(what, f"{measured:.2f}", MARKS[passed])
    console.print(goals)
    for note in notes:
        console.print(f"note: {note}", markup=False, highlight=False)


def as_json(rows: list[Row], notes: list[str]) -> dict[str, Any]:
    hidden = [None if row.hosts == 1 else row.hidden for row in rows]
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "models": {
            name: {"compute": model.compute, "smaller": model.smaller, "gradients": len(model.gradients)}
            for name, model in MODELS.items()
        },
        "rows": [{**asdict(row), "speedup": row.speedup, "hidden": share} for row, share in zip(rows, hidden)],
        "goals": [{"goal": what, "measured": value, "passed": passed} for what, value, passed in verdicts(rows)],
        "notes": notes,
    }


def main() -> None:
    """Measures what is asked for. Skips clearly where there can be no lab."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--hosts", nargs="+", type=int, default=list(HOSTS))
    usual = [name for name in CANDIDATES if name != COMPILED]
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=usual)
    parser.add_argument("--output", type=Path, help="results file")
    options = parser.parse_args()
    console = console_of(width=180)
    if reason := why_not():
        console.print(f"no scaling benchmark: {reason}")
        return
    candidates = [name for name in options.candidates if CANDIDATES[name].python.exists()]
    for name in set(options.candidates) - set(candidates):
        console.print(f"{name} is left out: `make bench-horovod` makes its environment")
    rows, notes = measure_all(options.models, options.hosts, candidates, console.print)
    path = options.output or results_path("scaling")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(rows, notes), indent=1) + "\n", encoding="utf-8")
    show(rows, notes, console)
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()

"""The targets of the project, each evaluated on what a run found out. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.cases import GATHERS, STEPS, least_bytes
from benchmarks.findings import NODE, TRAINING, Findings, Row
from benchmarks.measure import duration_text
from benchmarks.shapes import model_bytes
from benchmarks.training.models import FIVE_MS, MODELS, parameters_of

__all__ = [
    "MANY",
    "ONE_PROCESS",
    "OURS",
    "PEERS",
    "PLAIN",
    "TWO_PROCESSES",
    "TWO_RANKS",
    "UNWRAPPED",
    "Verdict",
    "best_peer",
    "communication_share",
    "of_nothing",
    "verdicts",
    "wire_ratio",
]

KIB, MIB = 1 << 10, 1 << 20
OURS, COPIED = "smddp_tf", "copied tensors"
TENSORFLOW_WAYS, OTHER_WAYS = ("MultiWorkerMirrored", "Horovod"), ("Keras on JAX", "PyTorch DDP")
PLAIN, UNWRAPPED = "Keras fit", "optimizer not wrapped"
ONE_PROCESS, TWO_PROCESSES = "first step, one process", "first step, two processes"
TWO_RANKS, MANY = "first step, 2 ranks", 64
PEERS = ("Open MPI 5", "MPICH", "Intel MPI", "oneCCL", "gloo", "Horovod")


@dataclass(frozen=True)
class Verdict:
    """One target beside what was measured.

    Attributes:
        what: the case.
        limit: the figure to reach.
        at_most: whether the figure must stay at or below the limit, or reach it.
        measured: the figure; None when something it needs was not measured.
        unit: "x", "us", ...
        detail: which peer, which times.
    """

    what: str
    limit: float
    at_most: bool
    measured: float | None
    unit: str = "x"
    detail: str = ""

    @property
    def passed(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


def best_peer(findings: Findings, size: int, ranks: int, doors: tuple[str, ...] = ("array", "function")) -> Row | None:
    """The fastest of the peers with one tensor of that size. Horovod has no door but a `tf.function`."""
    rows = [findings.find(peer, door, size, ranks) for peer in PEERS for door in doors]
    return min((row for row in rows if row), key=lambda row: row.median, default=None)


def wire_ratio(row: Row) -> float:
    """Time over what the link allows at the least, for a row of the lab; of the bytes in memory, whatever travels."""
    nodes, per_node, rate = lab_shape(row.place)
    return row.median * rate * 1e6 / (8 * row.bytes * least_bytes(row.door, nodes, per_node))


def lab_shape(place: str) -> tuple[int, int, int]:
    """ "lab 4x2 200" -> 4 nodes, 2 ranks on each, 200 Mbit/s."""
    _, shape, rate = place.split()
    nodes, per_node = shape.split("x")
    return int(nodes), int(per_node), int(rate)


def verdicts(findings: Findings) -> list[Verdict]:
    """Every target, in the order of the table they come from."""
    return [
        *_arrays(findings),
        *_functions(findings),
        *_lists(findings),
        *_steps(findings),
        *_training(findings),
        *_lab(findings),
        *_cost(findings),
        *_launch(findings),
    ]


def _arrays(findings: Findings) -> Iterator[Verdict]:
    for ranks, usual, at_64_mib in ((2, 5.0, 3.0), (4, 4.0, 2.5)):
        for size in (MIB, 16 * MIB, 64 * MIB, 256 * MIB):
            limit = at_64_mib if size == 64 * MIB else usual
            ours, peer = findings.find(OURS, "array", size, ranks), best_peer(findings, size, ranks)
            yield _faster(f"NumPy {size // MIB} MiB, np {ranks}: faster than the best peer", ours, peer, limit)
        for size in (64 * KIB, MIB):
            ours = findings.find(OURS, "array", size, ranks)
            for mpi in ("Open MPI 5", "MPICH"):
                peer = findings.find(mpi, "array", size, ranks)
                yield _faster(f"NumPy {size // KIB} KiB, np {ranks}: faster than {mpi}", ours, peer, 1.5)
        ours, intel = (findings.find(who, "array", 64 * KIB, ranks) for who in (OURS, "Intel MPI"))
        yield _slower(f"NumPy 64 KiB, np {ranks}: time over Intel MPI's", ours, intel, 1.5)
        ours, intel = (findings.find(who, "array", MIB, ranks) for who in (OURS, "Intel MPI"))
        yield _faster(f"NumPy 1 MiB, np {ranks}: faster than Intel MPI", ours, intel, 1.1)
    for size in (MIB, 16 * MIB, 64 * MIB, 256 * MIB):
        ours, mark = findings.find(OURS, "array", size, 2), findings.find("reference", "array", size, 2)
        yield _slower(f"NumPy {size // MIB} MiB, np 2: time over the reference", ours, mark, 1.3)


def _functions(findings: Findings) -> Iterator[Verdict]:
    for ranks, limit in ((2, 3.0), (4, 2.5)):
        ours, peer = findings.find(OURS, "function", 64 * MIB, ranks), best_peer(findings, 64 * MIB, ranks)
        yield _faster(f"tf.function 64 MiB, np {ranks}: faster than the best peer", ours, peer, limit)
    ours, plus = (findings.find(OURS, door, 4, 2) for door in ("function", "plus"))
    over = 1e6 * (ours.median - plus.median) if ours and plus else None
    yield Verdict("tf.function 4 B, np 2: median", 60.0, True, ours.median * 1e6 if ours else None, "us")
    yield Verdict("tf.function 4 B, np 2: more than x + 1", 100.0, True, over, "us", _beside(ours, plus))
    horovod = findings.find("Horovod", "function", 4, 2)
    yield _faster("tf.function 4 B, np 2: faster than Horovod", ours, horovod, 20.0)


def _lists(findings: Findings) -> Iterator[Verdict]:
    for ranks, model in itertools.product((2, 4), ("ResNet-50", "BERT-base")):
        size = model_bytes(model)
        ours = findings.find(OURS, "list", size, ranks, model=model)
        flat = findings.find(OURS, "function", size, ranks)
        yield _slower(f"{model} list, np {ranks}: time over one flat buffer", ours, flat, 1.15)
        if ranks == 2:
            horovod = findings.find("Horovod", "list", size, ranks, model=model)
            yield _faster(f"{model} list, np {ranks}: faster than Horovod", ours, horovod, 4.0)
        named, grouped = (findings.find(OURS, door, size, ranks, model=model) for door in ("named", "grouped"))
        horovod = findings.find("Horovod", "named", size, ranks, model=model)
        yield _slower(f"{model} by name, np {ranks}: time over the grouped form", named, grouped, 1.3)
        yield _faster(f"{model} by name, np {ranks}: faster than Horovod", named, horovod, 2.5)


def _steps(findings: Findings) -> Iterator[Verdict]:
    for ranks, model in itertools.product((2, 4), ("ResNet-50", "BERT-base")):
        for alone, reduced in (STEPS[:2], STEPS[2:])[: 2 if ranks == 2 else 1]:
            ours, horovod = (_communication(findings, who, model, ranks, alone, reduced) for who in (OURS, "Horovod"))
            ratio = horovod / ours if ours and horovod else None
            times = f"{duration_text(ours)}, Horovod {duration_text(horovod)}" if ours and horovod else ""
            what = f"{model} step, {reduced}, np {ranks}: communication less than Horovod's"
            yield Verdict(what, 4.0 if ranks == 2 else 2.5, False, ratio, "x", times)
        shared, copied = (findings.find(who, "tape", model_bytes(model), ranks, model=model) for who in (OURS, COPIED))
        yield _slower(f"{model} step, tape, np {ranks}: over copied tensors", shared, copied, 0.9)


def _communication(findings: Findings, who: str, model: str, ranks: int, alone: str, reduced: str) -> float | None:
    """What a step takes more with the other ranks than alone, in seconds; at least a microsecond."""
    rows = [findings.find(who, door, model_bytes(model), ranks, model=model) for door in (alone, reduced)]
    return max(1e-6, rows[1].median - rows[0].median) if rows[0] and rows[1] else None


def communication_share(findings: Findings, who: str, model: str) -> float | None:
    """What a training step takes more on 2 ranks than alone, over the latter; at least a thousandth."""
    alone, together = (_step_of(findings, who, model, ranks) for ranks in (1, 2))
    return max(1e-3, together.median / alone.median - 1) if alone and together else None


def _step_of(findings: Findings, who: str, model: str, ranks: int) -> Row | None:
    return findings.find(who, "step", 4 * parameters_of(model), ranks, TRAINING, model)


def _training(findings: Findings) -> Iterator[Verdict]:
    for model in (name for name in MODELS if name != FIVE_MS):
        ours = communication_share(findings, OURS, model)
        for who in (*TENSORFLOW_WAYS, *OTHER_WAYS):
            peers = communication_share(findings, who, model)
            ratio, shares = (peers / ours, f"{ours:.2f}, {who} {peers:.2f}") if ours and peers else (None, "")
            yield Verdict(f"{model} training: communication's share less than {who}'s", 2.0, False, ratio, "x", shares)
        step = _step_of(findings, OURS, model, 2)
        for who in TENSORFLOW_WAYS:
            yield _slower(f"{model} training: step over {who}'s", step, _step_of(findings, who, model, 2), 1.0)
        yield from _over_plain_fit(findings, model)
    step, plain = (_step_of(findings, who, FIVE_MS, 2) for who in (OURS, PLAIN))
    yield _slower("step of 5 ms, np 2: step over `fit` without us", step, plain, 1.08)


def _over_plain_fit(findings: Findings, model: str) -> Iterator[Verdict]:
    """On one core, see `training.alone`: beside other processes, and beside other steps of the same processes."""
    times = {who: statistics.median(seconds) for who, seconds in findings.alone.get(model, {}).items()}
    detail = ", ".join(f"{who} {duration_text(seconds)}" for who, seconds in times.items())
    for who, what in ((PLAIN, "`fit` without us"), (UNWRAPPED, "one with Keras's optimizer")):
        ratio = times[OURS] / times[who] if times else None
        yield Verdict(f"{model} training, one rank: step over {what}", 1.03, True, ratio, "x", detail)


def of_nothing(ranks: int) -> str:
    """The name of a job that does nothing."""
    return f"smddprun -np {ranks} true"


def _launch(findings: Findings) -> Iterator[Verdict]:
    of = {name: statistics.median(seconds) for name, seconds in findings.launch.items()}
    times = ", ".join(f"{name.removeprefix('first step, ')} {duration_text(seconds)}" for name, seconds in of.items())
    for name, bar in ((ONE_PROCESS, 1.15), (TWO_PROCESSES, 1.15)):
        ratio = of[TWO_RANKS] / of[name] if of else None
        what = f"first step on 2 ranks over that of {name.removeprefix('first step, ')} without us"
        yield Verdict(what, bar, True, ratio, "x", times)
    for ranks, bar in ((2, 0.5), (MANY, 2.0)):
        yield Verdict(of_nothing(ranks), bar, True, of.get(of_nothing(ranks)), "s")


def _lab(findings: Findings) -> Iterator[Verdict]:
    limits = (("4x2", 1, 1.20), ("4x2", 25, 1.12), ("4x2", 100, 1.10), ("8x1", 25, 1.20), ("8x1", 100, 1.15))
    for shape, mib, limit in limits:
        ours = findings.find(OURS, "array", mib * MIB, 8, f"lab {shape} 200")
        what = f"lab {shape}, 200 Mbit/s, {mib} MiB: time over the bound"
        yield Verdict(what, limit, True, wire_ratio(ours) if ours else None, "x", _time(ours))
    for mib in (1, 25, 100):
        ours = findings.find(OURS, "array", mib * MIB, 8, "lab 4x2 200")
        sent = ours.sent / (least_bytes("array", 4, 2) * ours.bytes) if ours and ours.sent else None
        yield Verdict(f"lab 4x2, {mib} MiB: bytes a node sends over the ideal", 1.02, True, sent)
    for door in ("reducescatter", *GATHERS):
        for mib in (25, 100):
            ours = findings.find(OURS, door, mib * MIB, 8, "lab 4x2 200")
            what = f"lab 4x2, 200 Mbit/s, {door} of {mib} MiB: "
            yield Verdict(
                what + "time over the bound", 1.15, True, wire_ratio(ours) if ours else None, "x", _time(ours)
            )
            sent = ours.sent / (least_bytes(door, 4, 2) * ours.bytes) if ours and ours.sent else None
            yield Verdict(what + "bytes a node sends over the least", 1.02, True, sent)
    ours = findings.find(OURS, "bfloat16", 25 * MIB, 8, "lab 4x2 200")
    what = "lab 4x2, 25 MiB, bf16 wire: time over the float32 bound"
    yield Verdict(what, 0.58, True, wire_ratio(ours) if ours else None, "x", _time(ours))
    for mib in (25, 100):
        plain, ours = (findings.find(OURS, door, mib * MIB, 8, "lab 4x2 200") for door in ("array", "int8"))
        what = f"lab 4x2, 200 Mbit/s, {mib} MiB, int8 over float32: "
        yield Verdict(
            what + "time", 0.30, True, ours.median / plain.median if ours and plain else None, "x", _time(ours)
        )
        yield Verdict(what + "bytes", 0.27, True, ours.sent / plain.sent if ours and plain and plain.sent else None)
    steps = [step for step in findings.steps if step["place"] != NODE]
    if not steps:
        yield Verdict("training step on the lab over max(compute, communication)", 1.10, True, None)
    for step in steps:
        ratio = step["together"] / max(step["compute"], step["communication"])
        what = f"{step['place']}, {step['model']} step over max(compute, communication)"
        cores = f"{1e3 * step['together']:.0f} ms; the cores alone need {1e3 * step['cores_need']:.0f} ms"
        yield Verdict(what, 1.10, True, ratio, "x", cores)


def _cost(findings: Findings) -> Iterator[Verdict]:
    idle = findings.cost.get("idle_cpu")
    yield Verdict("idle CPU of a rank", 1.0, True, None if idle is None else 100 * idle, "%")


def _faster(what: str, ours: Row | None, peer: Row | None, limit: float) -> Verdict:
    ratio = peer.median / ours.median if ours and peer else None
    return Verdict(what, limit, False, ratio, "x", _beside(ours, peer))


def _slower(what: str, ours: Row | None, other: Row | None, limit: float) -> Verdict:
    ratio = ours.median / other.median if ours and other else None
    return Verdict(what, limit, True, ratio, "x", _beside(ours, other))


def _beside(ours: Row | None, other: Row | None) -> str:
    if not ours or not other:
        return _time(ours)
    who = other.candidate if other.candidate != OURS else {"function": "flat"}.get(other.door, other.door)
    return f"{_time(ours)}, {who} {_time(other)}"


def _time(row: Row | None) -> str:
    return duration_text(row.median) if row else ""

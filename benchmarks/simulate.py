"""Training steps on clusters that nobody has here, simulated: `python -m benchmarks.simulate SCALING.json`.

What is simulated is what the engine does: gradients fill buckets in the order in which they are there, buckets are cut
into chunks, eight chunks are in flight, and each travels by the messages of its algorithm. The sizes, the choice of the
algorithm and the messages come from the engine's own functions; SimGrid (`native/replay.cc`; Casanova et al. 2014,
"Versatile, scalable, and accurate simulation of distributed applications and platforms") moves them as flows that share
links fairly. The ranks of a host are one host with one link: its rails send the same at the same time.

The model has two figures that are fitted, on two rows of a scaling benchmark: the part of the links' rate that payload
gets, on two hosts; and by how many bytes each message is longer, on four. The second stands for what the lab shows
where a link serves several peers by turns, and fair shares of flows do not; a ring has it not. All other rows, those of
eight hosts among them, are then predicted, and their errors printed. Nothing is said about larger clusters if one of
them is off by more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.measure import wire_bound
from benchmarks.peers import ENVIRONMENTS, ROOT
from benchmarks.report import console_of
from benchmarks.scaling import HOROVOD_BUCKET_BYTES, MODELS, Model, buckets_in_lab, schedule_bound
from tests.native_module import core

__all__ = ["Cluster", "Job", "buckets", "chunks", "lab_job", "real_job", "simulate"]

IN_FLIGHT = 8  # chunks between nodes, see docs/algorithms.md
LAB_MESSAGE = 10e-6  # a call of MPI on two cores
LAB_LATENCY = 250e-6  # one way: the lab's 200 us and what two hosts' kernels need
MOST_ERROR = 0.10
MOST_MESSAGES = 5e5  # of one simulation; with more, chunks are joined, and their messages cost as much as before


@dataclass(frozen=True)
class Cluster:
    """Hosts and what joins them.

    Attributes:
        hosts: how many.
        ranks: of each host.
        rate: bits per second of a host's link, of which `efficiency` is left for payload.
        latency: seconds, one way.
        message: seconds that a message costs the rank that sends it.
        longer: bytes that a message takes of a link beside its own, when its peers change.
        leaf: hosts at a leaf switch; 0: all at one switch.
        uplink: rate of a leaf's links to the other leaves, over that of its hosts: 1 is a full fat tree.
        node_rate: bytes per second at which the ranks of a host add up a chunk and spread its sum.
    """

    hosts: int
    ranks: int
    rate: float
    latency: float
    message: float
    longer: float = 0.0
    efficiency: float = 1.0
    leaf: int = 0
    uplink: float = 1.0
    node_rate: float = math.inf


@dataclass(frozen=True)
class Job:
    """A step: its gradients in the order of the model, when they are there, and how they are cut.

    Attributes:
        elements: of each gradient.
        ready: seconds after the step began, of each gradient.
        compute: seconds of the computation.
        bucket_bytes: as the engine chooses them.
        chunk_bytes: likewise.
    """

    elements: list[int]
    ready: list[float]
    compute: float
    bucket_bytes: int
    chunk_bytes: int


def lab_job(model: Model, hosts: int, waits: bool = True) -> Job:
    """A step of `benchmarks.scaling`; without waits, the reduction of gradients that are all there."""
    ready = model.ready if waits else [0.0] * len(model.elements)
    bucket_bytes = buckets_in_lab(model)
    return Job(
        model.elements, ready, model.lab_seconds if waits else 0.0, bucket_bytes, core().default_chunk_bytes(hosts)
    )


def real_job(model: Model, cluster: Cluster) -> Job:
    """The same step of V100s, with the sizes that the engine chooses for the cluster."""
    elements = [math.prod(shape) for shape in model.gradients]
    bucket_bytes = core().bucket_bytes_for(elements, "", cluster.hosts)
    chunk_bytes = core().default_chunk_bytes(cluster.hosts * cluster.ranks)
    ready = [moment / model.slower for moment in model.ready]
    return Job(elements, ready, model.compute, bucket_bytes, chunk_bytes)


def buckets(job: Job) -> list[tuple[float, int]]:
    """When each bucket is complete, and its bytes."""
    made: list[tuple[float, int]] = []
    filled = 0
    order = sorted(range(len(job.elements)), key=lambda place: (job.ready[place], -place))
    for place in order:
        filled += 4 * job.elements[place]
        if filled >= job.bucket_bytes or place == order[-1]:
            made.append((job.ready[place], filled))
            filled = 0
    return made


def chunks(job: Job) -> list[tuple[float, int]]:
    """When each chunk can be sent, and its bytes."""
    cut = []
    for ready, size in buckets(job):
        full, rest = divmod(size, job.chunk_bytes)
        cut += [(ready, job.chunk_bytes)] * full + ([(ready, rest)] if rest else [])
    return cut


@cache
def messages(algorithm: str, members: int) -> list[list[tuple[int, float, int]]]:
    """What each member sends: to whom, which share of the bytes, after how many messages one after another.

    The engine's own algorithm runs over queues, which write down what passes.
    """
    arrays = [np.zeros(32 * members, np.float32).view(np.uint8) for _ in range(members)]
    counts = core().rail_run(algorithm, arrays, "float32", 1)
    return [[(to, size / arrays[0].nbytes, after) for to, size, after in row["sent"]] for row in counts]


def algorithm_for(cluster: Cluster, size: int, chunk_bytes: int) -> str:
    """Which one the engine chooses for a bucket."""
    per_rail = cluster.rate * cluster.efficiency / 8 / cluster.ranks
    link = {"latency_s": cluster.latency, "message_s": cluster.message, "bytes_per_s": per_rail}
    rail = {"places_vary": True, "chunk_bytes": chunk_bytes // cluster.ranks}
    chosen: str = core().rail_choose(cluster.hosts, cluster.ranks, size // cluster.ranks, "float32", **link, **rail)
    return chosen


def simulate(job: Job, cluster: Cluster, late: Sequence[float] | None = None, algorithm: str = "") -> float:
    """Seconds of a step; `late`: by how many of them each host's gradients come later."""
    if cluster.hosts == 1:
        return job.compute + max(late or [0.0])
    name = algorithm or algorithm_for(cluster, job.bucket_bytes, job.chunk_bytes)
    sent = messages(name, cluster.hosts)
    in_all = sum(map(len, sent)) * len(chunks(job))
    joined = math.ceil(in_all / MOST_MESSAGES)
    cut = chunks(replace(job, chunk_bytes=job.chunk_bytes * joined))
    longer = cluster.longer if cluster.hosts > 2 and name != "ring" else 0.0
    words: list[Any] = [cluster.hosts, cluster.rate * cluster.efficiency, cluster.latency, cluster.message * joined]
    words += [longer * joined, IN_FLIGHT, cluster.leaf, cluster.uplink, *(late or [0.0] * cluster.hosts), 1]
    for row in sent:
        words += [len(row), *(word for message in row for word in message)]
    words.append(len(cut))
    for ready, size in cut:
        words += [ready, size, 0, size / cluster.node_rate]
    command = [str(replayer()), "--log=root.thres:critical"]
    done = subprocess.run(command, input=" ".join(map(str, words)), capture_output=True, text=True, check=True)
    return max(float(done.stdout), job.compute)


@cache
def replayer() -> Path:
    """The program of `native/replay.cc`."""
    source, program = ROOT / "benchmarks" / "native" / "replay.cc", ENVIRONMENTS / "replay"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(exist_ok=True)
        subprocess.run(["c++", "-O2", "-std=c++17", "-w", source, "-lsimgrid", "-o", program], check=True)
    return program


# --- Fitting and checking ---


@dataclass(frozen=True)
class Checked:
    """A row of the lab beside its prediction."""

    what: str
    measured: float
    predicted: float
    fitted: bool

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def lab_cluster(hosts: int, rate: float, efficiency: float, longer: float) -> Cluster:
    return Cluster(hosts, 1, rate, LAB_LATENCY, LAB_MESSAGE, longer, efficiency)


def bisected(function: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a rising function has that value."""
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2


def fitted(rows: Sequence[dict[str, Any]], rate: float, algorithm: str) -> tuple[float, float]:
    """Efficiency, from a row of two hosts; and the bytes by which messages are longer, from one of four."""
    few, many = rows

    def alone(row: dict[str, Any], efficiency: float, longer: float) -> float:
        job = lab_job(MODELS[row["model"]], row["hosts"], waits=False)
        return simulate(job, lab_cluster(row["hosts"], rate, efficiency, longer), algorithm=algorithm)

    inverse = bisected(lambda x: alone(few, 1 / x, 0.0), few["communication"], 1.0, 2.0)
    longer = bisected(lambda x: alone(many, 1 / inverse, x), many["communication"], 0.0, 1e5)
    return 1 / inverse, longer


def checked(found: dict[str, Any], rate: float, algorithm: str) -> tuple[list[Checked], float, float]:
    """All rows of ours in the lab, predicted from two of them."""
    rows = [row for row in found["rows"] if row["candidate"] == "smddp_tf" and row["hosts"] > 1]
    largest = max(MODELS, key=lambda name: sum(MODELS[name].elements))
    of_largest = {row["hosts"]: row for row in rows if row["model"] == largest}
    fit_on = [of_largest[2], of_largest[4]]
    efficiency, longer = fitted(fit_on, rate, algorithm)
    compared = []
    for row in rows:
        cluster = lab_cluster(row["hosts"], rate, efficiency, longer)
        for waits, measured in ((False, row["communication"]), (True, row["together"]["median"])):
            predicted = simulate(lab_job(MODELS[row["model"]], row["hosts"], waits), cluster, algorithm=algorithm)
            what = f"{row['model']}, {row['hosts']} hosts, {'step' if waits else 'alone'}"
            compared.append(Checked(what, measured, predicted, not waits and row in fit_on))
    return compared, efficiency, longer


# --- Beyond the lab ---


def lateness(hosts: int, ranks: int, spread: float, seconds: float, seed: int) -> list[float]:
    """Each host is as late as its slowest rank: computations of normally distributed length."""
    draw = random.Random(seed)
    return [max(max(draw.gauss(0.0, spread * seconds), 0.0) for _ in range(ranks)) for _ in range(hosts)]


def serial(job: Job, seconds_of: Callable[[int], float]) -> float:
    """A step whose buckets travel one after another, each for so long."""
    ready, sizes = zip(*buckets(job))
    return schedule_bound(ready, [seconds_of(size) for size in sizes], job.compute)


def others(job: Job, cluster: Cluster) -> dict[str, float]:
    """Formulas of what others do, with the same buckets; Horovod's of 128 MiB, after an agreement of all ranks."""
    rate, latency, hosts = cluster.rate * cluster.efficiency / 8, cluster.latency, cluster.hosts
    all_ranks = hosts * cluster.ranks

    def wire(size: int) -> float:
        return wire_bound(size, hosts, 8 * rate)

    def ring(size: int) -> float:
        return 2 * (all_ranks - 1) * (latency + cluster.message) + wire(size)

    def tree(size: int) -> float:
        return 2 * math.ceil(math.log2(hosts)) * (latency + cluster.message) + 2 * size / rate

    def hierarchy(size: int) -> float:
        return 2 * size / cluster.node_rate + 2 * math.ceil(math.log2(hosts)) * latency + wire(size)

    def negotiated(size: int) -> float:
        return 1e-3 / 2 + 2 * math.ceil(math.log2(all_ranks)) * latency + ring(size)

    fused = replace(job, bucket_bytes=HOROVOD_BUCKET_BYTES)
    return {
        "flat ring": serial(job, ring),
        "tree": serial(job, tree),
        "unpipelined hierarchy": serial(job, hierarchy),
        "Horovod (ring, negotiation)": serial(fused, negotiated),
    }


PUBLISHED = (
    "Herring, BERT-large, 2,048 V100: 85 %; Horovod at 512 GPUs: 90 % (Inception V3, ResNet-101), 68 % (VGG-16); "
    "exascale climate analytics (Gordon Bell 2018), 27,360 GPUs: 90.7 %"
)


# Of other programs on other machines; the last character is the marker.
PUBLISHED_POINTS = {
    "Herring, BERT-large *": (2048, 0.85),
    "Horovod, ResNet-101 ^": (512, 0.90),
    "Horovod, VGG-16 v": (512, 0.68),
}


@dataclass(frozen=True)
class Prediction:
    """Efficiency of a step on a cluster: computation over step."""

    model: str
    rate: float
    hosts: int
    ranks: int
    algorithm: str
    bucket_bytes: int
    chunk_bytes: int
    step: float
    wire: float
    efficiency: float
    others: dict[str, float]


def predictions(
    rates: Sequence[float],
    hosts: Sequence[int],
    spread: float,
    latency: float,
    message: float,
    longer: float,
    efficiency: float,
) -> list[Prediction]:
    """All models over clusters of eight ranks a host, on a full fat tree with 16 hosts a leaf."""
    made = []
    for rate in rates:
        for count in hosts:
            cluster = Cluster(count, 8, rate, latency, message, longer, efficiency, leaf=16, node_rate=60e9)
            for name, model in MODELS.items():
                job = real_job(model, cluster)
                late = lateness(count, 8, spread, job.compute, seed=count)
                step = simulate(job, cluster, late)
                wire = wire_bound(4 * sum(job.elements), count, rate * efficiency)
                chosen = "" if count == 1 else algorithm_for(cluster, job.bucket_bytes, job.chunk_bytes)
                waited = max(late)
                peers = {} if count == 1 else {k: job.compute / (v + waited) for k, v in others(job, cluster).items()}
                sizes = (job.bucket_bytes, job.chunk_bytes)
                made.append(Prediction(name, rate, count, 8, chosen, *sizes, step, wire, job.compute / step, peers))
    return made


def error_table(rows: Sequence[Checked]) -> Table:
    made = Table(title="the lab, measured and predicted (seconds)")
    for column in ("row", "measured", "predicted", "error", ""):
        made.add_column(column, justify="left" if column in ("row", "") else "right")
    for row in rows:
        mark = "fitted on" if row.fitted else ""
        made.add_row(row.what, f"{row.measured:.3f}", f"{row.predicted:.3f}", f"{row.error:+.1%}", mark)
    return made


def prediction_table(rows: Sequence[Prediction]) -> Table:
    made = Table(title="computation / step of eight V100s a host, simulated", caption=PUBLISHED)
    names = list(next((row.others for row in rows if row.others), {}))
    for column in ("model", "Gbit/s", "ranks", "algorithm", "bucket MiB", "chunk KiB", "ours", "bound", *names):
        made.add_column(column, justify="left" if column in ("model", "algorithm") else "right")
    for row in rows:
        bound = min(1.0, MODELS[row.model].compute / row.wire) if row.wire else 1.0
        cells = [row.model, f"{row.rate / 1e9:.0f}", str(row.hosts * row.ranks), row.algorithm]
        cells += [f"{row.bucket_bytes / 2**20:.1f}", f"{row.chunk_bytes / 1024:.0f}"]
        cells += [f"{row.efficiency:.0%}", f"{bound:.0%}", *(f"{row.others[name]:.0%}" for name in names if row.others)]
        made.add_row(*cells)
    return made


def draw(rows: Sequence[Prediction], path: Path) -> None:
    """Efficiency over ranks, a picture for each rate, with the published points."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rates = sorted({row.rate for row in rows})
    figure, axes = pyplot.subplots(1, len(rates), figsize=(4 * len(rates), 3.5), sharey=True, squeeze=False)
    for axis, rate in zip(axes[0], rates):
        for model in MODELS:
            curve = sorted(
                (row.hosts * row.ranks, row.efficiency) for row in rows if (row.model, row.rate) == (model, rate)
            )
            axis.plot(*zip(*curve), marker="o", label=f"{model}, simulated")
        for label, (ranks, efficiency) in PUBLISHED_POINTS.items():
            axis.plot(ranks, efficiency, "k" + label[-1], label=label[:-2])
        axis.set(xscale="log", ylim=(0, 1.05), xlabel="ranks", title=f"{rate / 1e9:.0f} Gbit/s a host")
    axes[0][0].set_ylabel("computation / step")
    axes[0][-1].legend(fontsize="x-small", loc="lower left")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Fits, checks, and predicts only what the check allows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__)
    parser.add_argument("scaling", type=Path, help="results file of benchmarks.scaling")
    parser.add_argument("--hosts", nargs="+", type=int, default=[1, 2, 8, 32, 64, 128, 256, 512])
    parser.add_argument("--gbit", nargs="+", type=float, default=[25, 100, 400])
    parser.add_argument("--latency-us", type=float, default=15.0)
    parser.add_argument("--message-us", type=float, default=1.5, help="what a message costs its sender")
    parser.add_argument("--spread", type=float, help="of a rank's step time, over it; default: as in the scaling file")
    parser.add_argument(
        "--measured-with", default="", help="algorithm of the measured rows; default: what is chosen now"
    )
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--output", type=Path, help="results file")
    parser.add_argument("--picture", type=Path, help="draws the predictions")
    options = parser.parse_args()
    console = console_of(width=200)
    found = json.loads(options.scaling.read_text(encoding="utf-8"))
    rows, efficiency, longer = checked(found, 200e6, options.measured_with)
    console.print(error_table(rows))
    worst = max(abs(row.error) for row in rows)
    console.print(
        f"payload {efficiency:.3f} of the rate, messages {longer:.0f} bytes longer; largest error {worst:.1%}"
    )
    result: dict[str, Any] = {"when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "efficiency": efficiency}
    result |= {
        "longer": longer,
        "largest_error": worst,
        "checked": [{**asdict(row), "error": row.error} for row in rows],
    }
    if worst > MOST_ERROR:
        console.print(f"no prediction: the largest error is above {MOST_ERROR:.0%}")
    elif not options.check_only:
        spread = options.spread if options.spread is not None else measured_spread(found)
        console.print(f"spread of a rank's computation: {spread:.2%}")
        figures = (spread, options.latency_us * 1e-6, options.message_us * 1e-6, longer, efficiency)
        made = predictions([gbit * 1e9 for gbit in options.gbit], options.hosts, *figures)
        console.print(prediction_table(made))
        result |= {"spread": spread, "predictions": [asdict(one) for one in made]}
        if options.picture:
            draw(made, options.picture)
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {options.output}")
    sys.exit(worst > MOST_ERROR)


def measured_spread(found: dict[str, Any]) -> float:
    """A standard deviation of the steps, over their median: the largest of our rows in the lab."""
    ours = [row["together"] for row in found["rows"] if row["candidate"] == "smddp_tf" and row["hosts"] > 1]
    return float(max((one["p90"] - one["p10"]) / 2.56 / one["median"] for one in ours))


if __name__ == "__main__":
    main()

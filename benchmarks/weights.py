"""A transformer that trains in parts of the memory that its weights, gradients and optimizer state take.

`python -m benchmarks.weights [--ranks 4] [--nodes 2] [--layers 12] [--width 512] [--lab 1000] [--limit 4000]`: AdamW,
in three ways: full weights and state on each rank ("full"), the state in parts (`partition_state="world"`), and weights
in parts (`hvd.partition_weights`). Each way is a job of its own. With `--limit` each rank has so many MiB of memory (a
control group where this process can make one, else a limit of its address space), the C library returns freed tensors
at once, and a way may be killed. The sums of all weights must be the same to rounding (the terms of a gradient of
attention are added in another order). `--nodes` and `--lab` are those of `benchmarks.sharding`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lab import why_not
from benchmarks.measure import duration_text
from benchmarks.ranks import process_bytes
from benchmarks.sharding import bytes_of, measured, pretend, step_of, transformer

__all__ = ["main"]

WAYS = ("full", "state", "weights")
HEADS = ("way", "weights", "slots", "model", "at most", "step", "of full", "sent/node", "bytes of full", "sum |w|")
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
RUN_SECONDS = 1500


def sum_of_weights(model: Any) -> float:
    """Of the absolute values of all weights in full, which all ranks gather one by one."""
    found = [value for layer in model._flatten_layers(include_self=False) for value in vars(layer).values()]
    return float(sum(np.abs(each.numpy(), dtype=np.float64).sum() for each in found if hasattr(each, "assign")))


@contextlib.contextmanager
def most_resident() -> Iterator[list[int]]:
    """Inside, notes the most anonymous memory of this process: one number, in bytes."""
    most, done = [process_bytes("RssAnon")], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            most[0] = max(most[0], process_bytes("RssAnon"))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def take_limit(mebibytes: int) -> None:
    """Gives this process so much memory."""
    group = MEMORY_GROUPS / f"smddp-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(mebibytes << 20), encoding="ascii")
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    except OSError:
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20))


def work(folder: Path, arguments: argparse.Namespace) -> None:
    """The program of one rank."""
    import keras
    import tensorflow as tf

    import smddp_tf.keras as hvd
    from smddp_tf._native import loader

    os.environ["SMDDP_SHARED_TENSORS"] = "0"  # or memory of tensors is not RssAnon
    tf.constant(0.0)
    if arguments.limit:
        take_limit(arguments.limit)
    hvd.init()
    before, way = process_bytes("RssAnon"), arguments.way
    with hvd.partition_weights() if way == "weights" else contextlib.nullcontext():
        model = transformer(arguments.layers, arguments.width)
    state = "world" if way == "state" else None
    optimizer = hvd.DistributedOptimizer(keras.optimizers.AdamW(1e-3), partition_state=state, sparse_as_dense=True)
    optimizer.build(model.trainable_variables)
    made = process_bytes("RssAnon") - before
    step = step_of(model, optimizer)
    seconds: list[float] = []
    with most_resident() as most:
        for number in range(arguments.steps):
            hvd.allreduce(tf.zeros([]), name="bench.weights")
            if number == 2:
                sent = loader.core().stats()["rail_bytes_sent"]
            begin = time.perf_counter()
            float(step())
            seconds.append(time.perf_counter() - begin)
        sent = (loader.core().stats()["rail_bytes_sent"] - sent) / (arguments.steps - 2)
    answer = {
        "weights": bytes_of(model.trainable_variables),
        "slots": bytes_of(optimizer.variables[2:]),
        "made": made,
        "most": most[0] - before,
        "sent": sent,
        "seconds": seconds[2:],
        "sum": sum_of_weights(model),
    }
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(answer), encoding="utf-8")
    hvd.shutdown()


def show(ways: dict[str, list[dict[str, Any]] | None], arguments: argparse.Namespace) -> int:
    """Prints the table; returns how many ranks have other weights than the first one of a way that was not killed."""
    limit = f", {arguments.limit} MiB for each rank" if arguments.limit else ""
    print(
        f"{arguments.layers} layers of {arguments.width}, AdamW, {arguments.ranks} ranks on {arguments.nodes} node(s)"
        f"{limit}; MB of the rank with most: weights, slots, both when made, at most in a step; s"
    )
    print("".join(f"{head:>15}" for head in HEADS))
    full = statistics.median(map(max, zip(*(rank["seconds"] for rank in ways["full"])))) if ways.get("full") else None
    sent_by_full = sum(rank["sent"] for rank in ways["full"]) if ways.get("full") else 0
    for way, ranks in ways.items():
        if ranks is None:
            print(f"{way:>15}{'killed':>15}")
            continue
        step, sent = (
            statistics.median(map(max, zip(*(rank["seconds"] for rank in ranks)))),
            sum(r["sent"] for r in ranks),
        )
        sizes = [f"{max(rank[key] for rank in ranks) / 1e6:.0f}" for key in ("weights", "slots", "made", "most")]
        cells = [way, *sizes, duration_text(step), f"{step / full:.2f}" if full else "-"]
        cells += [f"{sent / arguments.nodes / 1e6:.1f}", f"{sent / sent_by_full:.2f}" if sent_by_full else "-"]
        print("".join(f"{cell:>15}" for cell in (*cells, f"{ranks[0]['sum']:.8g}")))
    sums = [rank["sum"] for ranks in ways.values() for rank in ranks or ()]
    return sum(abs(each / sums[0] - 1) > 1e-6 for each in sums)


def survived(arguments: argparse.Namespace, way: str) -> list[dict[str, Any]] | None:
    """What the ranks answer, by rank; None where they were killed."""
    passed = [f"--{name}={getattr(arguments, name)}" for name in ("layers", "width", "steps", "limit")]
    if arguments.limit:
        os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # resident memory is what is alive: see docs/memory.md
    where = (arguments.ranks, arguments.nodes, arguments.lab, RUN_SECONDS)
    try:
        return measured("benchmarks.weights", *where, "--way", way, *passed)
    except subprocess.CalledProcessError:
        if not arguments.limit:
            raise
        return None
    finally:
        for group in MEMORY_GROUPS.glob("smddp-bench-*"):
            with contextlib.suppress(OSError):
                group.rmdir()


def main() -> None:
    """Starts the ranks and shows what they measured; is itself the program of a rank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights", description=__doc__.splitlines()[0])
    for name, default in {
        "ranks": 2,
        "nodes": 1,
        "layers": 12,
        "width": 512,
        "steps": 12,
        "lab": 0,
        "limit": 0,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        pretend(arguments.nodes, arguments.ranks)
        work(arguments.folder, arguments)
        return
    if arguments.lab and (reason := why_not()):
        sys.exit(f"no lab: {reason}")
    sys.exit(1 if show({way: survived(arguments, way) for way in arguments.ways.split(",")}, arguments) else 0)


if __name__ == "__main__":
    main()

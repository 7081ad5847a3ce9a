"""What a rank needs as the number of ranks grows: `python -m benchmarks.growth [--ranks 2 8 16 32 64]`.

Ranks of one machine that pretend to be nodes of eight, over TCP: the engine without TensorFlow. Reported are the most
of all ranks: seconds of `init`, which the machine's few cores share; resident memory and shared memory that it adds;
threads; sockets after `init`, after a large allreduce, and after allreduces by name (of these also the median).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.ranks import answers_of_ranks, process_bytes
from benchmarks.report import console_of
from tests.native_module import core

__all__ = ["main", "needs"]

PER_NODE = 8
RUN_SECONDS = 300.0
NAMES = 161  # as many as ResNet-50 has gradients
TENSOR_BYTES = 1 << 18


def sockets() -> int:
    """Open ones of this process."""
    folder = Path("/proc/self/fd")
    count = 0
    for entry in folder.iterdir():
        try:
            count += os.readlink(entry).startswith("socket:")
        except OSError:  # the folder's own descriptor is gone
            continue
    return count


def needs(rank: int) -> dict[str, Any]:
    """What this rank needs."""
    os.environ["SMDDP_HOST_ID"] = f"pretended-{rank // PER_NODE}"
    engine = core()
    before, start = process_bytes("VmRSS"), time.perf_counter()
    engine.init([], 0)
    found: dict[str, Any] = {"init_seconds": time.perf_counter() - start}
    found["resident_bytes"] = process_bytes("VmRSS") - before
    found["shared_bytes"] = engine.stats()["arena_bytes"]
    found["threads"] = len(list(Path("/proc/self/task").iterdir()))
    found["sockets_at_first"] = sockets()
    large = np.ones(TENSOR_BYTES // 4, np.float32)
    for _ in range(3):
        engine.allreduce([large], "float32", "growth.large", 1)
    found["sockets_after_one"] = sockets()
    small = [np.ones(2, np.float32) for _ in range(NAMES)]
    start = time.perf_counter()
    for place, one in enumerate(small):
        engine.allreduce([one], "float32", f"growth.{place}", 1)
    found["named_seconds"] = (time.perf_counter() - start) / NAMES
    found["sockets_after_names"] = sockets()
    found["resident_at_last"] = process_bytes("VmRSS") - before
    engine.shutdown()
    return found


def measure(ranks: int) -> dict[str, Any]:
    """The most of all ranks; "usual": the median, of sockets."""
    of_ranks = answers_of_ranks("benchmarks.growth", ranks, RUN_SECONDS, "--folder", "{folder}")
    most = {what: max(one[what] for one in of_ranks) for what in of_ranks[0]}
    usual = {what: statistics.median(one[what] for one in of_ranks) for what in most if what.startswith("sockets")}
    return {"ranks": ranks, **most, "usual": usual}


def show(rows: list[dict[str, Any]], console: Console) -> None:
    def cell(row: dict[str, Any], what: str) -> str:
        if what in row["usual"]:
            return f"{row['usual'][what]:g} / {row[what]}"
        in_mib = "bytes" in what or "resident" in what
        return f"{row[what] / 2**20:.1f} MiB" if in_mib else f"{row[what]:.4g}"

    columns = [what for what in rows[0] if what != "usual"]
    table = Table(title="the most of all ranks (sockets: median / most), nodes of eight pretended on one machine")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(cell(row, what) for what in columns))
    console.print(table)


def main() -> None:
    """One line for each number of ranks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 8, 16, 32, 64])
    parser.add_argument("--output", type=Path, help="results file")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
        (options.folder / f"{rank}.json").write_text(json.dumps(needs(rank)), encoding="utf-8")
        return
    os.environ |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "SMDDP_HEARTBEAT_TIMEOUT": "120"}
    rows = [measure(ranks) for ranks in options.ranks]
    show(rows, console_of(width=180))
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

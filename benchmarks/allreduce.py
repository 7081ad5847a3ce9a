"""Our allreduce of NumPy arrays beside MPI_Allreduce of the same MPI, in one run. Start it with `make bench`.

The result is checked before anything is timed, element by element. See README.md for the formulas.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from mpi4py import MPI
from rich.console import Console
from rich.table import Table

import smddp_tf as hvd
from benchmarks.measure import Timing, measure_in_turns
from smddp_tf._loader import core

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)


def wrong_elements(comm: MPI.Comm, size_bytes: int) -> int:
    """How many elements of our result differ from the exact sum, over all ranks. Values differ per rank and place."""
    count = size_bytes // 4
    mine = (np.arange(count) % 1021 + 7 * comm.rank).astype(np.float32)
    expected = (np.arange(count) % 1021).astype(np.float32) * comm.size + 7 * sum(range(comm.size))
    core().allreduce([mine], "float32", "bench.check", int(hvd.Sum))
    return comm.allreduce(int(np.count_nonzero(mine != expected)))


def measure(comm: MPI.Comm, size_bytes: int, repetitions: int) -> dict[str, Timing]:
    """Times ours, MPI's, and one copy of the same bytes inside a rank (what memory alone would allow)."""
    mine = np.full(size_bytes // 4, 1 + comm.rank, np.float32)
    other = np.empty_like(mine)
    return measure_in_turns(
        comm,
        {
            "smddp_tf": lambda: core().allreduce([mine], "float32", "bench", int(hvd.Average)),
            "MPI_Allreduce": lambda: comm.Allreduce(mine, other),
            "copy": lambda: np.copyto(other, mine),
        },
        repetitions,
    )


def row(comm: MPI.Comm, size_bytes: int, repetitions: int) -> dict[str, object]:
    """One size: what was wrong, the times, and what they mean."""
    wrong = wrong_elements(comm, size_bytes)
    times = measure(comm, size_bytes, repetitions)
    ours = times["smddp_tf"].median
    bandwidth = size_bytes / ours
    return {
        "bytes": size_bytes,
        "ranks": comm.size,
        "wrong": wrong,
        "seconds": {name: vars(timing) for name, timing in times.items()},
        "algorithm_bandwidth": bandwidth,
        "bus_bandwidth": bandwidth * 2 * (comm.size - 1) / comm.size,
        "times_mpi": times["MPI_Allreduce"].median / ours,
        "times_copy": ours / times["copy"].median,
    }


def show(rows: list[dict], console: Console) -> None:
    """The table. Times in ms, bandwidths in GB/s (1e9)."""
    table = Table(title=f"allreduce of float32, {rows[0]['ranks']} ranks, {hvd.cross_size()} node(s)")
    for column in ("bytes", "wrong", "smddp_tf ms (p10-p90)", "MPI ms", "faster x", "alg GB/s", "bus GB/s", "copies"):
        table.add_column(column, justify="right")
    for r in rows:
        ours, mpi = r["seconds"]["smddp_tf"], r["seconds"]["MPI_Allreduce"]
        table.add_row(
            str(r["bytes"]),
            str(r["wrong"]),
            f"{ours['median'] * 1e3:.3f} ({ours['p10'] * 1e3:.3f}-{ours['p90'] * 1e3:.3f})",
            f"{mpi['median'] * 1e3:.3f}",
            f"{r['times_mpi']:.2f}",
            f"{r['algorithm_bandwidth'] / 1e9:.2f}",
            f"{r['bus_bandwidth'] / 1e9:.2f}",
            f"{r['times_copy']:.1f}",
        )
    console.print(table)


def main() -> None:
    """Runs all sizes; rank 0 prints. Ends with exit code 1 when an element was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--max-bytes", type=int, default=SIZES[-1])
    parser.add_argument("--json", type=Path, help="write the measurements there")
    options = parser.parse_args()
    hvd.init()
    comm = MPI.COMM_WORLD.Dup()
    rows = [row(comm, size, options.repetitions) for size in SIZES if size <= options.max_bytes]
    if comm.rank == 0:
        show(rows, Console(width=140))
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if any(r["wrong"] for r in rows):
        raise SystemExit("allreduce gave wrong elements, see the table")


if __name__ == "__main__":
    main()

"""Long runs with a look at what must not grow: python -m tests.soak [--only CASE] [--count N] [--tcp]."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from tests.support.mpirun import find_mpirun, mpirun_flags


@dataclass(frozen=True)
class Case:
    """A run of tests/soak/worker.py."""

    name: str
    ranks: int
    count: int
    limit_s: float
    what: str


CASES = (
    Case("collectives", 4, 100_000, 3000, "mixed collectives on each rank"),
    Case("cycles", 2, 1000, 1800, "times init and shutdown"),
    Case("many", 4, 10_000, 900, "tensors in one step"),
    Case("large", 2, 3 << 30, 900, "bytes in one tensor"),
    Case("crowded", 16, 4000, 1800, "mixed collectives on each of 16 ranks"),
)


def run(case: Case, count: int, seed: int, tcp: bool = False) -> bool:
    """Starts the ranks, which with `tcp` do without MPI, as on two hosts; True when all ended well."""
    mpirun = find_mpirun()
    launcher = [sys.executable, "-m", "smddp_tf.run", "--no-mpi"] if tcp else [mpirun, *mpirun_flags(mpirun)]
    command = [*launcher, "-np", str(case.ranks), sys.executable, "-m", "tests.soak.worker"]
    start = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*command, case.name, str(count), str(seed)], env=environment, timeout=case.limit_s, check=False
        )
        ended = "all well" if done.returncode == 0 else f"ended with {done.returncode}"
    except subprocess.TimeoutExpired:
        ended = f"not done after {case.limit_s:.0f} s"
    over = ", over TCP" if tcp else ""
    print(
        f"soak {case.name}: {count} {case.what}{over}, {ended}, {time.monotonic() - start:.0f} s (seed {seed})",
        flush=True,
    )
    return ended == "all well"


def main() -> None:
    """Runs the cases; ends with 1 when one went wrong."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--only", choices=[case.name for case in CASES], help="one case instead of all")
    parser.add_argument("--count", type=int, help="instead of the case's own number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tcp", action="store_true", help="ranks that do without MPI, on two pretended hosts")
    asked = parser.parse_args()
    chosen = [case for case in CASES if asked.only in (None, case.name)]
    ended = [run(case, asked.count or case.count, asked.seed, asked.tcp) for case in chosen]
    sys.exit(not all(ended))


if __name__ == "__main__":
    main()

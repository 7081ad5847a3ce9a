"""Starts the ranks, again after a case that ended them: python -m tests.random --help."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.mpirun import environment, find_mpirun, mpirun_flags

START_SECONDS = 240.0


def main() -> None:
    """Ends with 1 when something was found."""
    parser = argparse.ArgumentParser(prog="make test-random", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="no case begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--count", type=int, help="so many cases at most")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", default="", help="ranks of each pretended node, such as 2,1")
    parser.add_argument("--case", type=int, help="this one only")
    parser.add_argument("--with", dest="with_", nargs="*", default=[], metavar="NAME=VALUE", help="changes the case")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false", help="print findings as they are drawn")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    asked = parser.parse_args()
    end, first, failed = time.monotonic() + asked.seconds, asked.first, False
    while True:
        with tempfile.TemporaryDirectory() as folder:
            progress = Path(folder, "progress")
            code = _job(asked, first, max(1.0, end - time.monotonic()), progress)
            reached = int(progress.read_text(encoding="utf-8").split()[0]) if progress.exists() else None
        failed = failed or code != 0
        stuck = code not in (0, 1) and reached is not None
        if not stuck or asked.case is not None or time.monotonic() > end:
            sys.exit(failed)
        print(f"The job ended with {code} in case {reached}; going on with the next one.", flush=True)
        first = reached + 1


def _job(asked: argparse.Namespace, first: int, seconds: float, progress: Path) -> int:
    mpirun = find_mpirun()
    words = ["--seed", asked.seed, "--first", first, "--seconds", seconds, "--progress", progress]
    words += ["--count", asked.count] if asked.count else []
    words += ["--nodes", asked.nodes] if asked.nodes else []
    words += ["--case", asked.case] if asked.case is not None else []
    words += ["--shrink"] if asked.shrink else []
    words += ["--verbose"] if asked.verbose else []
    words += ["--with", *asked.with_] if asked.with_ else []
    command = [mpirun, "-np", str(asked.ranks), *mpirun_flags(mpirun), sys.executable, "-m", "tests.random.worker"]
    more = {"SMDDP_STALL_ERROR_SECONDS": "60", "SMDDP_TEST_TRACEBACKS": os.environ.get("SMDDP_TEST_TRACEBACKS", "")}
    try:
        return subprocess.run(
            [*command, *map(str, words)], env=environment(more), timeout=seconds + START_SECONDS, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return -1


if __name__ == "__main__":
    main()

"""Starts our ranks on this machine and collects what they measured; the memory of a rank."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from benchmarks.peers import CANDIDATES, ROOT

__all__ = ["answers_of_ranks", "measure_on_ranks", "process_bytes"]


def process_bytes(field: str) -> int:
    """A number of bytes of this process, of those in /proc/self/status: "VmRSS", "RssAnon", "VmHWM", ..."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def environment_of_ranks() -> dict[str, str]:
    """The environment variables of ranks that measure smddp_tf, and of what starts them."""
    return {**os.environ, **CANDIDATES["smddp_tf"].variables, "PYTHONPATH": str(ROOT)}


def answers_of_ranks(
    module: str, ranks: int, seconds: float, *arguments: str, log: IO[bytes] | None = None
) -> list[Any]:
    """Runs `python -m module ARGUMENTS...` on `ranks` ranks; "{folder}" in an argument is filled in.

    Each rank writes folder/RANK.json. With `log`, what they print goes there.

    Returns:
        The contents of these files, by rank.

    Raises:
        subprocess.SubprocessError: the ranks failed, or took longer than `seconds`.
    """
    ours = CANDIDATES["smddp_tf"]
    launcher = [part.format(ranks=ranks, bin=ours.python.parent) for part in ours.launcher]
    with tempfile.TemporaryDirectory(prefix="smddp_bench_") as folder:
        command = [*launcher, str(ours.python), "-m", module, *(part.format(folder=folder) for part in arguments)]
        subprocess.run(command, env=environment_of_ranks(), stdout=log, stderr=log, timeout=seconds, check=True)
        files = [Path(folder) / f"{rank}.json" for rank in range(ranks)]
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def measure_on_ranks(
    module: str,
    description: str,
    seconds: float,
    work: Callable[[Path], None],
    show: Callable[[list[Any]], int],
) -> None:
    """The program of a benchmark and of its ranks: starts these, each runs `work(folder)`, and shows their answers.

    Args:
        module: the benchmark, for `python -m`.
        description: for `--help`.
        seconds: the most that the ranks may take.
        work: writes folder/RANK.json.
        show: prints the answers of all ranks, by rank; returns the number of wrong elements.

    Raises:
        SystemExit: with 1 when elements were wrong, else with 0.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        work(arguments.folder)
        return
    raise SystemExit(1 if show(answers_of_ranks(module, arguments.ranks, seconds, "--folder", "{folder}")) else 0)

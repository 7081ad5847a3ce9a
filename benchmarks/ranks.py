"""Starts our ranks on this machine and collects what they measured."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

from benchmarks.peers import CANDIDATES, ROOT

__all__ = ["answers_of_ranks"]


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
    variables = {**os.environ, **ours.variables, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="smddp_bench_") as folder:
        command = [*launcher, str(ours.python), "-m", module, *(part.format(folder=folder) for part in arguments)]
        subprocess.run(command, env=variables, stdout=log, stderr=log, timeout=seconds, check=True)
        files = [Path(folder) / f"{rank}.json" for rank in range(ranks)]
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

"""Starts one of `programs.py` on ranks, by mpirun or torchrun, and returns what each rank has written."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import mpirun

PROGRAMS = Path(__file__).with_name("programs.py")
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node"]
# One rank of two acts as if it was on another host, by the library's own way to pretend it.
NODES = "import os, runpy, sys; rank = int(os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['RANK']); "


def by_mpirun(ranks: int, *words: object, nodes: int = 1, timeout: float = 60) -> mpirun.Finished:
    """`words`: the program and its arguments. The ranks are shared among pretended `nodes`."""
    return mpirun.launch(_command(ranks, nodes, words), ranks, timeout)


def by_torchrun(ranks: int, *words: object, nodes: int = 1, timeout: float = 60) -> mpirun.Finished:
    """As `by_mpirun`, without MPI."""
    torchrun = [*TORCHRUN, str(ranks), "--master-port", str(mpirun.free_port()), "--no-python", sys.executable]
    return mpirun.launch([*torchrun, *_command(ranks, nodes, words)], None, timeout)


def results(folder: Path, ranks: int) -> list[Any]:
    """What each rank has written into `folder`, by rank."""
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def _command(ranks: int, nodes: int, words: Sequence[object]) -> list[str]:
    if nodes == 1:
        return [str(PROGRAMS), *map(str, words)]
    code = f"{NODES}os.environ['SMDDP_HOST_ID'] = f'node {{rank * {nodes} // {ranks}}}'; "
    code += f"sys.argv = {['programs.py', *map(str, words)]!r}; runpy.run_path({str(PROGRAMS)!r}, run_name='__main__')"
    return ["-c", code]

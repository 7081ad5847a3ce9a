"""The engine's code needs no MPI but in runtime/{process,session_manager} and transport/mpi.

Programs that have ranks as threads (tests/stress, tests/fuzz) link the engine without MPI; they are built too seldom to
tell.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / f"native-{sys.implementation.cache_tag}"
OBJECTS = (BUILD / "tf_ops", BUILD / "tests" / "inproc")
STARTS = ("engine_session.cc.o", "cluster.cc.o")  # what those programs are made from


def symbols(of: Path) -> tuple[set[str], set[str]]:
    """What an object file has, and what it asks for."""
    lines = subprocess.run(["nm", str(of)], capture_output=True, text=True, check=True).stdout.splitlines()
    told = [line.split()[-2:] for line in lines if len(line.split()) >= 2]
    return {name for kind, name in told if kind in "TVWDBRui"}, {name for kind, name in told if kind == "U"}


def test_sessions_of_threads_reach_no_mpi() -> None:
    if not all(folder.is_dir() for folder in OBJECTS) or shutil.which("nm") is None:
        pytest.skip(f"needs nm and the object files of a build in {BUILD}")
    above = {"ops", "python", "cuda"}
    files = {file: symbols(file) for folder in OBJECTS for file in folder.rglob("*.o") if not above & set(file.parts)}
    home = {name: file for file, (has, _) in files.items() for name in has}
    reached = [file for file in files if file.name in STARTS]
    assert len(reached) == len(STARTS)
    come_from = dict.fromkeys(reached, "")
    for file in reached:
        asked = files[file][1]
        mpi = sorted(name for name in asked if name.startswith(("MPI_", "ompi_")))
        assert not mpi, f"{file.name}{come_from[file]} needs {mpi[0]}"
        for name in asked:
            other = home.get(name)
            if other is not None and other not in come_from:
                come_from[other] = f", which {file.name}{come_from[file]} needs for {name},"
                reached.append(other)
    assert len(reached) > 50, "the search must come to most of the engine"

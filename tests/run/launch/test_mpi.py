"""The `mpirun` that fits, and what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.mpi import MPICH, OPEN_MPI, kind_of_library, kind_of_mpirun, mpirun_candidates, with_home
from tests.run.run_dry import OPEN_MPI_4


def test_home_of_a_process_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_home({"HOME": "/home/me", "A": "1"}) == {"HOME": "/home/me", "A": "1"}
    monkeypatch.delenv("HOME")
    assert Path(with_home({})["HOME"]).is_absolute()
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # a user without an entry
    assert Path(with_home({"HOME": ""})["HOME"]).is_dir()


def test_kinds_of_mpirun() -> None:
    assert kind_of_mpirun("m", "mpirun (Open MPI) 4.1.4\n\nReport bugs") == type(OPEN_MPI_4)("m", OPEN_MPI, 4)
    assert kind_of_mpirun("m", "prterun (PRRTE) 3.0.11").major == 5
    assert kind_of_mpirun("m", "HYDRA build details:\n    Version:          5.0.2\n").kind == MPICH
    assert kind_of_mpirun("m", "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build").kind == MPICH
    with pytest.raises(LaunchError, match="neither"):
        kind_of_mpirun("m", "srun 22.05")
    assert [kind_of_library(name) for name in ("lib/libmpi.so.40", "/u/libmpi.so.12", "")] == [OPEN_MPI, MPICH, ""]


def test_mpirun_of_the_library_comes_first(tmp_path) -> None:
    def program(folder: str, name: str) -> str:
        path = tmp_path / folder / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    own, path, of_system = (program(folder, "mpirun") for folder in ("env", "path", "usr"))
    hydra = program("env", "mpiexec.hydra")
    environment = {"PATH": str(tmp_path / "path" / "bin")}
    prefix = str(tmp_path / "env")
    assert mpirun_candidates("lib/libmpi.so.40", prefix, f"{prefix}/bin", environment) == [own, path]
    absolute = str(tmp_path / "usr/lib/x86_64-linux-gnu/libmpi.so.40")
    assert mpirun_candidates(absolute, prefix, f"{prefix}/bin", environment) == [of_system, own, path]
    assert mpirun_candidates("lib/libmpi.so.12", prefix, f"{prefix}/bin", environment)[0] == hydra

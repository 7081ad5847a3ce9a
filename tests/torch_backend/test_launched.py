"""The variables that PyTorch reads, under launchers that do not set them. Run by `make test-torch`."""

from __future__ import annotations

import pytest

from tests.support import mpirun

pytest.importorskip("torch", reason="needs the environment of `make test-torch`")

PRINT = """
import os, smddp_tf, smddp_tf.torch
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
print("variables", *(os.environ.get(name, "none") for name in names), smddp_tf.is_initialized())
"""


def printed(output: str) -> list[list[str]]:
    return sorted(line.split("variables ")[1].split() for line in output.splitlines() if "variables " in line)


def test_mpirun_sets_none_and_the_import_does() -> None:
    finished = mpirun.launch(["-c", PRINT], 2, 30)
    assert finished.returncode == 0, finished.output
    first, second = printed(finished.output)
    assert first[:3] == ["0", "2", "0"]
    assert second[:3] == ["1", "2", "1"]
    assert first[3:5] == second[3:5] != ["none", "none"]
    assert first[5] == second[5] == "True"


def test_those_of_a_launcher_stay() -> None:
    finished = mpirun.launch(["-c", PRINT], 2, 30, {"MASTER_ADDR": "elsewhere"})
    assert [each[0:4] for each in printed(finished.output)] == [["none", "none", "none", "elsewhere"]] * 2


@pytest.mark.parametrize("before", ["", "import mpi4py.MPI\n"], ids=["alone", "beside an MPI of one process"])
def test_without_a_launcher_nothing_is_set(before: str) -> None:
    finished = mpirun.launch(["-c", before + PRINT], None, 30)
    assert printed(finished.output) == [["none"] * 5 + ["False"]], finished.output

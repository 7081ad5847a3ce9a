"""smddprun where nothing is launched: inside of an mpirun, or for one process."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from smddp_tf.run.launch.mpi import MPICH, find_mpi
from tests.run.started import PATIENCE, RANKS, smddprun
from tests.support.mpirun import launch

pytestmark = pytest.mark.launches


def test_the_same_variables_under_plain_mpirun() -> None:
    tell = "import os; print('told', *(os.environ.get(name) for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK')))"
    done = launch(["-m", "smddp_tf.run", sys.executable, "-c", tell], ranks=2, timeout=PATIENCE).check()
    assert sorted(re.findall("told (.*)", done.output)) == ["0 2 0", "1 2 1"]


# What `srun --mpi=pmix` leaves of a rank's environment: PMIx, and Slurm's own variables.
AS_UNDER_SRUN = """
import os, sys
rank = os.environ["PMIX_RANK"]
for name in [name for name in os.environ if name.startswith("OMPI_COMM") or name == "OMPI_UNIVERSE_SIZE"]:
    del os.environ[name]
os.environ.update(SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2", SLURM_LOCALID=rank, SLURM_PROCID=rank)
os.execv(sys.executable, [sys.executable, "-m", "smddp_tf.run", *sys.argv[1:]])
"""


@pytest.mark.parametrize(
    "inner",
    [["-m", "smddp_tf.run"], ["-m", "smddp_tf.run", sys.executable], ["-c", AS_UNDER_SRUN]],
    ids=["script", "command", "srun"],
)
def test_inside_mpirun_it_is_a_rank(inner: list[str]) -> None:
    """As `mpirun python -m smddp_tf.run script.py`, and as SageMaker's `mpirun smddprun python script.py`."""
    if AS_UNDER_SRUN in inner and find_mpi().kind == MPICH:
        pytest.skip("MPICH's mpiexec gives no PMIx to pretend with")
    done = launch([*inner, RANKS, "sum"], ranks=2, timeout=PATIENCE).check()
    assert sorted(re.findall(r"rank (\d) of 2: \[3.0, 3.0, 3.0\] (\d)", done.output)) == [("0", "0"), ("1", "1")]


@pytest.mark.parametrize("family", ["horovod", "smdistributed"])
def test_scripts_of_others_run_unchanged(tmp_path: Path, family: str) -> None:
    """One launched by us, one under an mpirun that is there already; also in processes that the script starts."""
    module = {"horovod": "horovod.tensorflow", "smdistributed": "smdistributed.dataparallel.tensorflow"}[family]
    script = tmp_path / "train.py"
    script.write_text(
        f"import subprocess, sys, {module} as hvd\nhvd.init()\n"
        "print('rank', hvd.rank(), 'of', hvd.size(), hvd.rank.__module__, flush=True)\n"
        f"child = 'import {module} as hvd; print(\"child\", hvd.rank.__module__)'\n"
        "if hvd.rank() == 1: subprocess.run([sys.executable, '-c', child], check=True)\n"
    )
    if family == "horovod":
        done = smddprun("-np", "2", "--as", family, script).check()
    else:
        done = launch(["-m", "smddp_tf.run", "--as", family, script], ranks=2, timeout=PATIENCE).check()
    assert sorted(re.findall(r"rank (\d) of 2 smddp_tf", done.output)) == ["0", "1"], done.output
    assert done.output.count("child smddp_tf") == 1


def test_a_script_that_is_not_launched_runs_here(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    script = tmp_path / "main.py"
    script.write_text("import sys, beside\nprint(__name__, beside.WORD, sys.argv)\nsys.exit(5)\n")
    done = smddprun(script, "--np", "3")
    assert done.returncode == 5
    assert done.output == f"__main__ found {[str(script), '--np', '3']}\n"

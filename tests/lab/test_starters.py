"""Two hosts of the lab whose ranks something else than MPI has started. Run by `make test-lab`."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.lab import SCRIPT, Lab
from tests.support.mpirun import ROOT, SCRIPTS

RANKS = SCRIPTS / "ranks_without_tensorflow.py"
TRAIN = ROOT / "examples" / "02_keras_digits.py"
TORCHRUN = ROOT / ".bench" / "torch" / "bin" / "torchrun"
ADDRESS = "10.77.0.1"  # node0's
SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
exec {script} exec "${{1#node}}" env -i HOME="$HOME" /bin/sh -c "$2"
"""


def tf_config(rank: int) -> str:
    return json.dumps({"cluster": {"worker": [f"{ADDRESS}:4712", "10.77.0.2:4712"]},
                       "task": {"type": "worker", "index": rank}})  # fmt: skip


STARTERS = {
    "plain variables": lambda rank: {"SMDDP_RANK": rank, "SMDDP_SIZE": 2, "SMDDP_COORDINATOR": f"{ADDRESS}:4711"},
    "variables of torchrun": lambda rank: {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": ADDRESS, "MASTER_PORT": 4713},
    "TF_CONFIG": lambda rank: {"TF_CONFIG": tf_config(rank)},
    "variables of Keras": lambda rank: {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"{ADDRESS}:4714,10.77.0.2:4714",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": 2,
        "KERAS_DISTRIBUTION_PROCESS_ID": rank,
    },
}


def on_both(lab: Lab, *commands: list[str | Path]) -> list[tuple[int, str]]:
    """Runs one command on each node at the same time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda pair: lab.execute(pair[0], *pair[1]), enumerate(commands)))


@pytest.mark.parametrize("starter", STARTERS)
def test_training(lab: Lab, tmp_path: Path, starter: str) -> None:
    program = ["python", TRAIN, "--epochs", "1", "--min-accuracy", "0.5", "--checkpoint", tmp_path / "digits.keras"]
    ended = on_both(
        lab,
        *(
            ["env", *(f"{name}={value}" for name, value in STARTERS[starter](rank).items()), *program]
            for rank in (0, 1)
        ),
    )
    assert [code for code, _ in ended] == [0, 0], ended
    assert "equal weights on all 2 rank(s)" in ended[0][1]


def test_training_by_torchrun(lab: Lab, tmp_path: Path) -> None:
    if not TORCHRUN.exists():
        pytest.skip(f"no torchrun: benchmarks/envs.sh torch makes {TORCHRUN}")
    ended = on_both(
        lab,
        *(
            [
                TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(node), "--master-addr", ADDRESS,
                "--master-port", "4715", "--no-python", "python", TRAIN, "--epochs", "1", "--min-accuracy", "0.5",
                "--checkpoint", tmp_path / "digits.keras",
            ]
            for node in (0, 1)
        ),
    )  # fmt: skip
    assert [code for code, _ in ended] == [0, 0], ended
    assert "equal weights on all 2 rank(s)" in ended[0][1]


def test_a_host_that_does_not_come_is_named_on_the_other(lab: Lab) -> None:
    variables = [f"{name}={value}" for name, value in STARTERS["plain variables"](1).items()]
    code, output = lab.execute(1, "env", *variables, "SMDDP_START_TIMEOUT=6", "HOROVOD_RANK=1", "python", RANKS, "sum")
    assert code == 1, output
    assert "Rank 1 (SMDDP_RANK and SMDDP_SIZE) did not meet rank 0 at 10.77.0.1:4711 within 6 s" in output
    assert "smddprun" not in output


def without_mpi(lab: Lab, tmp_path: Path, *arguments: str | Path) -> tuple[int, str]:
    """`smddprun --no-mpi` on node0, with something in ssh's place that enters the other node."""
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.format(script=SCRIPT.resolve()))
    ssh.chmod(0o755)
    program = f'PATH="{tmp_path}:$PATH" exec python -m smddp_tf.run --no-mpi -H node0:2,node1:2 "$@"'
    return lab.execute(0, "sh", "-c", program, "smddprun", *arguments)


def test_smddprun_without_mpi(lab: Lab, tmp_path: Path) -> None:
    code, output = without_mpi(lab, tmp_path, "-x", "GIVEN=yes", RANKS, "sum")
    assert code == 0, output
    for rank in range(4):
        assert f"[{rank}]<stdout>: rank {rank} of 4: [10.0, 10.0, 10.0] {rank % 2}\n" in output
        assert f"[{rank}]<stderr>: threshold None yes\n" in output


def test_smddprun_without_mpi_trains(lab: Lab, tmp_path: Path) -> None:
    checkpoint = tmp_path / "digits.keras"
    options = ("--epochs", "1", "--min-accuracy", "0.4", "--checkpoint", checkpoint)
    code, output = without_mpi(lab, tmp_path, TRAIN, *options)
    assert code == 0, output
    assert "equal weights on all 4 rank(s)" in output


def test_a_rank_that_fails_on_the_other_host_without_mpi(lab: Lab, tmp_path: Path) -> None:
    program = "import os, sys, time; time.sleep(0 if os.environ['SMDDP_RANK'] == '3' else 600); sys.exit(7)"
    code, output = without_mpi(lab, tmp_path, "python", "-c", program)
    assert code == 7, output
    assert re.search(r"smddprun: rank 3 on node1 ended with exit code 7", output)

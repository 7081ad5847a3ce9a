"""Processes that are started one by one, as torchrun and others do: they train as one process on the whole batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smddp_tf.lifecycle.rank_variables import without_rank_variables
from tests.support.mpirun import free_port
from tests.variants import FULL

pytestmark = pytest.mark.launches

SCRIPT = Path(__file__).with_name("train_alike.py")
ROOT = SCRIPT.parents[2]
LIMIT_SECONDS = 150


def torchrun(rank: int, port: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port - 1)}


def tf_config(rank: int, port: int) -> dict[str, str]:
    cluster = {"worker": [f"127.0.0.1:{port}", "127.0.0.1:1"]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})}


def ours(rank: int, port: int) -> dict[str, str]:
    """Of two hosts, so that messages travel by TCP."""
    numbers = {"SMDDP_RANK": str(rank), "SMDDP_SIZE": "2", "SMDDP_COORDINATOR": f"127.0.0.1:{port}"}
    return {**numbers, "SMDDP_SECRET": "of this test", "SMDDP_HOST_ID": f"host-{rank}"}


def slurm(rank: int, port: int) -> dict[str, str]:
    numbers = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "9"}
    return {**numbers, "SLURM_STEP_NODELIST": "localhost", "SMDDP_PORT": str(port)}


def keras_initialize(rank: int, port: int) -> dict[str, str]:
    """Without a launcher: the arguments of `keras.distribution.initialize`."""
    return {"KERAS_INITIALIZE": json.dumps([f"127.0.0.1:{port},127.0.0.1:1", 2, rank])}


def run(variables: list[dict[str, str]], *arguments: object) -> list[subprocess.CompletedProcess[str]]:
    """The ends of processes with these variables, in their order."""
    environment = {**without_rank_variables(os.environ), "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}
    words = [sys.executable, str(SCRIPT), *map(str, arguments)]
    started = [
        subprocess.Popen(
            words, env={**environment, **mine}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for mine in variables
    ]
    try:
        outputs = [process.communicate(timeout=LIMIT_SECONDS)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    return [subprocess.CompletedProcess(words, p.returncode, output) for p, output in zip(started, outputs)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """The weights of one process on the whole batches."""
    out = tmp_path_factory.mktemp("alone") / "out"
    (end,) = run([{}], out)
    assert end.returncode == 0, end.stdout
    with np.load(f"{out}.0.npz") as saved:
        return [saved[name] for name in saved.files if name != "numbers"]


@pytest.mark.parametrize("starter", [torchrun, keras_initialize, *((ours, tf_config, slurm) if FULL else ())])
def test_they_train_as_one_process(starter, alone: list[np.ndarray], tmp_path: Path) -> None:
    port = free_port()
    for end in run([starter(rank, port) for rank in range(2)], tmp_path / "out"):
        assert end.returncode == 0, end.stdout
    for rank in range(2):
        with np.load(f"{tmp_path}/out.{rank}.npz") as saved:
            assert list(saved["numbers"]) == [2, 0]  # two ranks, and no MPI
            found = [saved[name] for name in saved.files if name != "numbers"]
        for one, other in zip(found, alone):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_a_rank_that_is_killed_is_named(tmp_path: Path) -> None:
    port = free_port()
    survivor, killed = run([ours(rank, port) for rank in range(2)], tmp_path / "out", 1)
    assert killed.returncode == -9
    assert survivor.returncode not in (0, -9)
    assert "Rank 1 (host" in survivor.stdout
    assert "has died" in survivor.stdout

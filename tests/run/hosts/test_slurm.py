"""Slurm's allocation as hosts."""

from __future__ import annotations

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts import slurm
from tests.run.run_dry import OPEN_MPI_5, DryRun, values_of


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[01-03,7]", "n01 n02 n03 n7"),
        ("n[9-11],gpu,m[1]", "n9 n10 n11 gpu m1"),
        ("r[1-2]c[08-09]x", "r1c08x r1c09x r2c08x r2c09x"),
        ("a-b[099-101].site", "a-b099.site a-b100.site a-b101.site"),
    ],
)
def test_node_lists(text: str, names: str) -> None:
    assert slurm.expand_nodelist(text) == names.split()


@pytest.mark.parametrize("text", ["", "n[1", "n1]", "n[3-1]", "n[a-b]", "n[]"])
def test_node_lists_that_are_wrong(text: str) -> None:
    with pytest.raises(LaunchError):
        slurm.expand_nodelist(text)


@pytest.mark.parametrize(
    ("env", "hosts"),
    [
        ({"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "2(x2),1"}, "n1:2,n2:2,n3:1"),
        ({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS_PER_NODE": "4"}, "n1:4,n2:4"),
        ({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "5"}, "n1:3,n2:2"),
        ({"SLURM_NODELIST": "n[1-2]"}, "n1:1,n2:1"),
    ],
)
def test_allocation(dry_run: DryRun, env: dict[str, str], hosts: str) -> None:
    words = dry_run("train", env=env)  # salloc: no -np, no -H
    assert (words[1], values_of(words, "-H")) == (OPEN_MPI_5.mpirun, [hosts])
    ranks = sum(int(host.partition(":")[2]) for host in hosts.split(","))
    assert values_of(words, "-np") == [str(ranks)]
    assert not [name for name in values_of(words, "-x") if name.startswith("SLURM")]


def test_allocation_and_batch_script(dry_run: DryRun) -> None:
    env = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_PROCID": "0"}
    assert values_of(dry_run("-np", "3", "t", env=env), "-H") == ["n1:2,n2:2"]
    assert values_of(dry_run("-np", "2", "t", env=env), "-H") == ["n1:2"]
    assert values_of(dry_run("t", env={**env, "SLURM_STEP_ID": str(0xFFFFFFFA)}), "-np") == ["4"]  # salloc's shell
    assert values_of(dry_run("-np", "2", "-H", "other:2", "t", env=env), "-H") == ["other:2"]
    with pytest.raises(LaunchError, match="speaks of 1 nodes"):
        slurm.allocated_hosts({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2"})

"""Hosts, host files, Slurm's lists, and which rank a process is."""

from __future__ import annotations

import re

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.placement import Placement, find_placement, why_apart
from smddp_tf.lifecycle.rank_variables import variables_of, without_rank_variables
from smddp_tf.run.hosts import slurm
from smddp_tf.run.hosts.hosts import Host, hosts_of_ranks, is_this_host, parse_host_file, parse_hosts
from tests.run.run_dry import OPEN_MPI_5, DryRun, values_of


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys)


def test_hosts() -> None:
    assert parse_hosts("a:2, b ,a:1,10.0.0.1:4") == [Host("a", 3), Host("b", 1), Host("10.0.0.1", 4)]
    assert parse_hosts("a,b:1", default_slots=3) == [Host("a", 3), Host("b", 1)]
    assert hosts_of_ranks([Host("a", 2), Host("b", 2)], 3) == ["a", "a", "b"]
    for text in ("", ",", ":2", "a:", "a:0", "a:-1"):
        with pytest.raises(LaunchError):
            parse_hosts(text)


def test_host_file(tmp_path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# ours\n a slots=4 # first\n\nb\nc:2\na slots = 1 max_slots=8\n")
    assert parse_host_file(file) == [Host("a", 5), Host("b", 1), Host("c", 2)]
    for text in ("", "a slots=x", "a cores=2", "a slots"):
        file.write_text(text)
        with pytest.raises(LaunchError):
            parse_host_file(file)


def test_this_host() -> None:
    import socket

    assert all(is_this_host(name) for name in ("localhost", "127.0.0.1", socket.gethostname()))
    assert not is_this_host("203.0.113.77")


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


@pytest.mark.parametrize(
    ("env", "placement"),
    [
        ({}, None),
        ({"SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "n1", "SLURM_NTASKS": "4"}, None),  # sbatch's script
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
             "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "3"},
            Placement(3, 4, 1, 2),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}, Placement(1, 2, 0, 1)),
        (
            {"PMIX_RANK": "5", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "2"},
            Placement(5, 8, 2, None),
        ),
        ({"PMIX_RANK": "5"}, Placement(5)),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"SLURM_STEP_ID": str(0xFFFFFFFA), "SLURM_STEP_NUM_TASKS": "2"}, None),  # salloc's shell
    ],
)  # fmt: skip
def test_placement(env: dict[str, str], placement: Placement | None) -> None:
    assert find_placement(env) == placement


def test_srun_without_pmi_is_an_error() -> None:
    with pytest.raises(LaunchError, match="srun --mpi=pmix"):
        find_placement({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"})


@pytest.mark.parametrize(
    ("env", "size", "words"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, 1, "started 4 processes"),
        ({"PMIX_RANK": "1"}, 1, "started 2 processes or more"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}, 1, "srun --mpi=pmix"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, 1, "WORLD_SIZE=2 says that 2 processes"),  # torchrun, Ray
        ({"RANK": "0", "WORLD_SIZE": "4"}, 2, "MPI sees 2"),  # mpirun in each of two pods
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "3"}, 1, "HOROVOD_SIZE=3"),  # horovodrun --gloo
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'}, 1, "TF_CONFIG=.* says that 2 .* unset TF_CONFIG;"),
        ({"TF_CONFIG": '{"cluster": {"chief": ["a:1"], "worker": {"0": "b:1"}, "ps": ["c:1"]}}'}, 1, "that 2 "),
    ],
)
def test_processes_that_would_train_apart(env: dict[str, str], size: int, words: str) -> None:
    assert re.search(words, why_apart(env, size))
    assert why_apart({**env, "SMDDP_MPI": "off"}, size) == ""
    assert why_apart(env, 4) == ""


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"PMI_RANK": "0", "PMI_SIZE": "1"},
        {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "3", "WORLD_SIZE": "all"},
        {"TF_CONFIG": '{"cluster": {"worker": ["a:1"], "ps": ["c:1", "d:1"], "evaluator": ["e:1"]}}'},
        {"TF_CONFIG": "{}"},
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "[1]"},
        {"TF_CONFIG": "{"},
    ],
)
def test_a_process_that_may_train_alone(env: dict[str, str]) -> None:
    assert why_apart(env, 1) == ""


def test_variables_of_a_rank() -> None:
    assert variables_of(Placement(3, 4, 1, 2)) == {
        "HOROVOD_RANK": "3", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2",
        "SMDATAPARALLEL_LOCAL_RANK": "1", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1",
    }  # fmt: skip
    assert variables_of(Placement(3)) == {"HOROVOD_RANK": "3", "RANK": "3"}


def test_a_job_from_inside_a_rank_is_a_new_one() -> None:
    kept = {"OMPI_MCA_pml": "ob1", "PRTE_MCA_x": "y", "PATH": "/bin"}
    rank = {"OMPI_COMM_WORLD_RANK": "0", "PMIX_NAMESPACE": "n", "PMI_FD": "7", "OMPI_MCA_ess": "pmi",
            "SMDDP_RUN_KEY": "k", "HOROVOD_RANK": "1", "HOROVOD_CROSS_SIZE": "2", "MASTER_ADDR": "h1",
            "MASTER_PORT": "9", "RANK": "1"}  # fmt: skip
    assert without_rank_variables({**kept, **rank}) == kept
    of_the_user = {"MASTER_ADDR": "h1", "RANK": "8"}  # the rank of an adapter, for instance
    assert without_rank_variables(of_the_user) == of_the_user

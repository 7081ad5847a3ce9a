"""Which rank a process is, by what launchers have left in its environment; and processes that would train apart."""

from __future__ import annotations

import re

import pytest

from smddp_tf.lifecycle.placement import Placement, find_placement, why_apart


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
        (  # srun without PMI or PMIx
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "2", "SLURM_LOCALID": "1"},
            Placement(2, 3, 1, None),
        ),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"SLURM_STEP_ID": str(0xFFFFFFFA), "SLURM_STEP_NUM_TASKS": "2"}, None),  # salloc's shell
    ],
)  # fmt: skip
def test_placement(env: dict[str, str], placement: Placement | None) -> None:
    assert find_placement(env) == placement


@pytest.mark.parametrize(
    ("env", "size", "words"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, 1, "started 4 processes"),
        ({"PMIX_RANK": "1"}, 1, "started 2 processes or more"),
        ({"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, 1, "started 2 processes"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, 1, "WORLD_SIZE=2 says that 2 processes"),  # torchrun, Ray
        ({"RANK": "0", "WORLD_SIZE": "4"}, 2, "this job has 2"),  # mpirun in each of two pods
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

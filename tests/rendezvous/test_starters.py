"""Which variables say that a process is one of several, and where all meet."""

from __future__ import annotations

import json
import re

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.rendezvous.starters import find_start, first_node

OURS = {"SMDDP_RANK": "2", "SMDDP_SIZE": "4", "SMDDP_COORDINATOR": "n1:4000"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500", "LOCAL_RANK": "0"}
CLUSTER = {"chief": ["c:1000"], "worker": ["w0:2000", "w1:3000"], "ps": ["p:1"], "evaluator": ["e:1"]}
SLURM = {
    "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "3", "SLURM_JOB_ID": "71",
    "SLURM_STEP_NODELIST": "n[07-09,11],m1",
}  # fmt: skip
KERAS = {
    "KERAS_DISTRIBUTION_JOB_ADDRESSES": "k0:5000,k1:5001", "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
    "KERAS_DISTRIBUTION_PROCESS_ID": "1",
}  # fmt: skip


def tf_config(kind: str, index: int, cluster: object = CLUSTER) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    ("environment", "rank", "size", "host", "port"),
    [
        (OURS, 2, 4, "n1", 4000),
        ({**OURS, "SMDDP_COORDINATOR": "[fd00::1]:4000"}, 2, 4, "fd00::1", 4000),
        (TORCHRUN, 1, 3, "10.0.0.7", 29501),
        ({**TORCHRUN, "SMDDP_PORT": "777"}, 1, 3, "10.0.0.7", 777),
        (tf_config("chief", 0), 0, 3, "c", 1000),
        (tf_config("worker", 1), 2, 3, "c", 1000),
        (tf_config("worker", 1, {"worker": ["w0:2000", "w1:3000"]}), 1, 2, "w0", 2000),
        (KERAS, 1, 2, "k0", 5000),
        (SLURM, 1, 2, "n07", 20000 + 71 * 7 + 3),
        ({**OURS, "RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, 2, 4, "n1", 4000),
    ],
)
def test_who_has_started(environment: dict[str, str], rank: int, size: int, host: str, port: int) -> None:
    start = find_start(environment)
    assert start
    assert (start.rank, start.size, start.host, start.port) == (rank, size, host, port)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "0"},
        {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"},
        tf_config("evaluator", 0),
        tf_config("worker", 0, {"worker": ["only:1"]}),
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": str(0xFFFFFFFB)},  # the batch script
    ],
)
def test_a_process_alone(environment: dict[str, str]) -> None:
    assert find_start(environment) is None


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({**OURS, "SMDDP_COORDINATOR": ""}, "SMDDP_COORDINATOR is not"),
        ({**OURS, "SMDDP_COORDINATOR": "n1"}, "SMDDP_COORDINATOR must give an address as host:port. Received: 'n1'"),
        ({**OURS, "SMDDP_RANK": "4"}, "say rank 4 of 4. Expected: 0 <= rank < 4"),
        ({**OURS, "SMDDP_SIZE": "four"}, "SMDDP_SIZE must be a number. Received: 'four'"),
        ({"RANK": "1", "WORLD_SIZE": "3"}, "MASTER_ADDR is not"),
        ({**TORCHRUN, "MASTER_PORT": ""}, "MASTER_PORT must be a number. Received: ''"),
        ({"TF_CONFIG": "{"}, "TF_CONFIG cannot be read"),
        ({**TORCHRUN, **tf_config("worker", 1)}, "rank 1 of 3, the variables TF_CONFIG say rank 2 of 3"),
    ],
)
def test_what_cannot_be(environment: dict[str, str], message: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(message)):
        find_start(environment)


@pytest.mark.parametrize(
    ("addresses", "host", "port"),
    [("h0", "h0", 29600), ("[fd00::2]:7,h1:8", "fd00::2", 7), ("[fd00::2]", "fd00::2", 29600)],
)
def test_keras_may_leave_the_port_out(addresses: str, host: str, port: int) -> None:
    start = find_start(dict(zip(KERAS, (addresses, "3", "2"))))
    assert start is not None
    assert (start.rank, start.size, start.host, start.port) == (2, 3, host, port)


def test_the_first_of_slurms_nodes() -> None:
    assert first_node("n[07-09,11],m1") == "n07"
    assert first_node("r[1-2]n[3-4]") == "r1n3"
    assert first_node("plain,other") == "plain"

"""The places of ranks that Ray or Spark has put on hosts."""

from __future__ import annotations

import json
import socket

from smddp_tf.lifecycle import assigned
from smddp_tf.rendezvous.starters import Start, find_start

PLACES: list[assigned.Place] = [
    ("h2", 401, "secret of 0", []),
    ("h1", 402, "secret of 1", []),
    ("h2", 403, "secret of 2", []),
    ("h1", 404, "secret of 3", []),
    ("h2", 405, "secret of 4", []),
]


def test_ranks_of_a_host_are_neighbours() -> None:
    found = assigned.variables_of_ranks(PLACES)
    assert [int(variables["SMDDP_RANK"]) for variables in found] == [0, 3, 1, 4, 2]
    assert [int(variables["LOCAL_RANK"]) for variables in found] == [0, 0, 1, 1, 2]
    assert [int(variables["HOROVOD_LOCAL_SIZE"]) for variables in found] == [3, 2, 3, 2, 3]


def test_the_variables_of_a_rank() -> None:
    variables = assigned.variables_of_ranks(PLACES)[3]
    assert variables == {
        "SMDDP_RANK": "4", "SMDDP_SIZE": "5", "SMDDP_COORDINATOR": "h2:401", "SMDDP_SECRET": "secret of 0",
        "RANK": "4", "WORLD_SIZE": "5", "LOCAL_RANK": "1", "MASTER_ADDR": "h2", "MASTER_PORT": "400",
        "HOROVOD_RANK": "4", "HOROVOD_SIZE": "5", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2",
        "SMDATAPARALLEL_LOCAL_RANK": "1",
    }  # fmt: skip
    assert find_start(variables) == Start(4, 5, "h2", 401, "SMDDP_RANK and SMDDP_SIZE")


def test_the_ranks_of_a_host_see_all_its_devices() -> None:
    devices = [["3"], ["0"], ["1", "2"], ["7"], []]
    places = [(*place[:3], those) for place, those in zip(PLACES, devices)]
    seen = [variables.get("CUDA_VISIBLE_DEVICES") for variables in assigned.variables_of_ranks(places)]
    assert seen == ["3,1,2", "0,7", "3,1,2", "0,7", "3,1,2"]


def test_a_place_has_a_free_port_and_a_secret() -> None:
    places = [assigned.place("h1", [2, "x"]) for _ in range(2)]
    assert json.loads(json.dumps(places[0])) == list(places[0])
    assert (places[0][0], places[0][3]) == ("h1", ["2", "x"])
    assert len({secret for _, _, secret, _ in places}) == 2
    with socket.create_server(("", places[0][1])):
        pass


def test_the_place_of_another_job_is_left() -> None:
    kept = {"PATH": "/bin", "SMDDP_LOG_LEVEL": "info", "OMPI_MCA_pml": "ob1"}
    left = {
        "SMDDP_RANK": "9", "SMDDP_SIZE": "12", "TF_CONFIG": "{}", "SLURM_STEP_NUM_TASKS": "3", "PMIX_RANK": "1",
        "RANK": "9", "WORLD_SIZE": "12", "OMPI_COMM_WORLD_RANK": "9", "SMDDP_RUN_PROCESS": "n:1:4",
    }  # fmt: skip
    environment = {**kept, **left}
    own = {"SMDDP_RANK": "1", "SMDDP_SIZE": "2", "GIVEN": "yes"}
    assigned.take_place(environment, own)
    assert environment == {**kept, **own}

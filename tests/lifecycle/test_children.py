"""Who is a rank, and who was started by one."""

from __future__ import annotations

import os
import socket

import pytest

from smddp_tf.lifecycle import children

MINE = {"PMIX_NAMESPACE": "prterun-host-12@1", "PMIX_RANK": "1", "OMPI_COMM_WORLD_RANK": "1"}


def process(place: str, number: int) -> dict[str, str]:
    return {children.PROCESS: f"{place}:{number}"}


@pytest.mark.parametrize(
    ("env", "is_child"),
    [
        ({}, False),
        (MINE, False),
        ({**MINE, **process("prterun-host-12@1:1", os.getpid())}, False),  # after os.exec
        ({**MINE, **process("prterun-host-12@1:1", 1)}, True),
        ({**MINE, **process("prterun-host-13@1:1", 1)}, False),  # of an mpirun that a rank has started
        ({**MINE, **process("prterun-host-12@1:11", 1)}, False),
        ({"PMI_RANK": "1", "PMI_FD": "987654"}, True),
        ({"PMI_RANK": "1", "PMI_FD": "987654", "PMI_PORT": "host:1"}, False),
        ({"PMI_RANK": "1", "PMI_FD": "a socket"}, False),
    ],
)
def test_children_of_ranks(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], is_child: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = {**{name: value.replace("a socket", str(ours.fileno())) for name, value in env.items()}, "HOME": "/h"}
        before = dict(found)
        monkeypatch.setattr(children, "_is_child", None)
        monkeypatch.setattr(children, "warn", lambda *_: None)
        assert children.leave_parents_job(found) is is_child
        mine = process("prterun-host-12@1:1", os.getpid()) if "PMIX_RANK" in env else {}
        assert found == ({"HOME": "/h"} if is_child else {**before, **mine})
        assert children.leave_parents_job(found) is is_child  # also when there is nothing left to see


def test_children_of_a_rank_that_changes_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a job whose ranks come and go; a child keeps nothing of it, and not the job's key."""
    job = {"SMDDP_RUN_NUMBER": "4", "SMDDP_RUN_ADDRESS": "h:1", "SMDDP_RUN_KEY": "s3cret", "SMDDP_RANK": "4"}
    mine = {**job, "SMDDP_SIZE": "5", "RANK": "2", "WORLD_SIZE": "3", "HOROVOD_RANK": "2", "HOME": "/h"}
    monkeypatch.setattr(children, "_is_child", None)
    assert not children.leave_parents_job(mine)
    assert mine[children.PROCESS] == f"h:1:4:{os.getpid()}"
    childs = {**mine, "RANK": "1", "WORLD_SIZE": "2", "HOROVOD_RANK": "1"}  # in a later round
    for number, is_child in ((os.getpid(), False), (1, True)):
        monkeypatch.setattr(children, "_is_child", None)
        monkeypatch.setattr(children, "warn", lambda *_: None)
        assert children.leave_parents_job({**childs, children.PROCESS: f"h:1:4:{number}"}) is is_child
    monkeypatch.setattr(children, "_is_child", None)
    assert children.leave_parents_job(gone := {**childs, children.PROCESS: "h:1:4:1"})
    assert gone == {"HOME": "/h"}

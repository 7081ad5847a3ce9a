"""What a GPU may do to its programs: allocation that waits for all work of the device, streams that share queues.

A hang here is a deadlock on hardware; the fake GPU then ends the process after half a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.fake_gpu.gpu import count, left_clean
from tests.gpu.bucket_job import ALIVE, Job, assert_equal_bits, assert_sums
from tests.gpu.gpu_steps import TWO_NODES, check, gradients, steps, sums
from tests.support.layouts import hosts

MODES = {"sync": {"SYNC": "1"}, "queues": {"QUEUES": "8"}, "both": {"SYNC": "1", "QUEUES": "8"}}


@pytest.fixture(autouse=True, params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[None]:
    with left_clean(ALIVE, DEVICES="4", DELAY_US="300", **MODES[request.param]):
        yield


@pytest.mark.parametrize("layout", [hosts(4), hosts(2, 1)], ids=["4", "2+1"])
def test_buckets_through_host_memory(layout):
    job = Job(layout, "host", steps=4)
    results = job.results()
    assert_equal_bits(results, job.on_cpu().results())


@pytest.mark.parametrize("layout", [hosts(4), hosts(2, 2)], ids=["4", "2+2"])
def test_buckets_by_nccl(layout):
    job = Job(layout, "nccl", steps=4)
    assert_sums(job, job.results())


@pytest.mark.parametrize("in_host_memory", [{}, {0: [2], 3: [0, 7, 9]}], ids=["on GPUs", "some in host memory"])
def test_buckets_by_nccl_inside_nodes(in_host_memory):
    """A rank that allocated while a kernel waits for the rest of its node would stop the other node's exchange."""
    job = Job(hosts(2, 2), "nccl-node", steps=4, in_host_memory=in_host_memory)
    assert_sums(job, job.results())


def test_memory_that_was_waited_for_is_there_in_later_steps():
    job = Job(hosts(2, 2), "nccl-node", steps=2)
    job.results()
    before = count("allocate") + count("pin")
    job.results()
    in_two_steps = count("allocate") + count("pin") - before
    replace(job, steps=12).results()
    assert count("allocate") + count("pin") - before - in_two_steps <= in_two_steps + 8


@pytest.mark.parametrize(
    ("ranks", "stage", "devices"),
    [
        (["a"] * 3, "host", [0, 0, 0]),
        (["a"] * 3, "nccl", [0, 1, 2]),
        (TWO_NODES, "nccl-node", [0, 1, 2, 3]),
    ],
    ids=["host", "nccl", "nccl-node"],
)
def test_sessions(ranks, stage, devices):
    """Plans, whose buffers are made while other buckets are on their way."""
    arrays = gradients(len(ranks))
    expected = [sum_ * len(ranks) ** 3 for sum_ in sums(arrays)]
    assert steps(ranks, arrays, stage=stage, device_of_rank=devices, steps=4) == [""] * len(ranks)
    check(arrays, expected)


def test_named_requests():
    arrays = gradients(3)
    expected = sums(arrays)
    assert steps(["a"] * 3, arrays, planned=False, steps=1) == [""] * 3
    check(arrays, expected)

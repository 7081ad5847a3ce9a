"""What a GPU may do to its programs: allocation that waits for all work of the device, streams that share queues.

A hang here is a deadlock on hardware; the fake GPU then ends the process after half a minute.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fake_gpu.gpu import left_clean
from tests.gpu.bucket_job import ALIVE, Job, assert_equal_bits, assert_sums
from tests.gpu.gpu_steps import check, gradients, steps, sums
from tests.support.layouts import hosts

MODES = {"sync": {"SYNC": "1"}, "queues": {"QUEUES": "8"}, "both": {"SYNC": "1", "QUEUES": "8"}}


@pytest.fixture(autouse=True, params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    with left_clean(ALIVE, DEVICES="4", DELAY_US="300", **MODES[request.param]):
        yield MODES[request.param]


@pytest.mark.parametrize("layout", [hosts(4), hosts(2, 1)], ids=["4", "2+1"])
def test_buckets_through_host_memory(layout):
    job = Job(layout, "host", steps=4)
    results = job.results()
    assert_equal_bits(results, job.on_cpu().results())


@pytest.mark.parametrize("layout", [hosts(4), hosts(2, 2)], ids=["4", "2+2"])
def test_buckets_by_nccl(layout):
    job = Job(layout, "nccl", steps=4)
    assert_sums(job, job.results())


def test_buckets_by_nccl_inside_nodes(mode):
    if "SYNC" in mode:
        # A rank of each node allocates for a bucket while a kernel of another one waits for the rest of its node, whose
        # exchange waits for the other node.
        pytest.xfail("allocation in a step is a deadlock where it waits for the device")
    job = Job(hosts(2, 2), "nccl-node", steps=4)
    assert_sums(job, job.results())


@pytest.mark.parametrize(("stage", "devices"), [("host", [0, 0, 0]), ("nccl", [0, 1, 2])])
def test_sessions(stage, devices):
    """Plans, whose buffers are made while other buckets are on their way."""
    arrays = gradients(3)
    expected = [sum_ * 3**3 for sum_ in sums(arrays)]
    assert steps(["a"] * 3, arrays, stage=stage, device_of_rank=devices, steps=4) == [""] * 3
    check(arrays, expected)


def test_named_requests():
    arrays = gradients(3)
    expected = sums(arrays)
    assert steps(["a"] * 3, arrays, planned=False, steps=1) == [""] * 3
    check(arrays, expected)

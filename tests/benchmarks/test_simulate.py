"""The simulation's own arithmetic; the flows themselves are SimGrid's."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import simulate
from benchmarks.scaling import MODELS
from benchmarks.simulate import Checked, Cluster, Job, buckets, chunks

JOB = Job(elements=[100, 50, 25, 25], ready=[4.0, 3.0, 2.0, 2.0], compute=4.0, bucket_bytes=200, chunk_bytes=150)
LAN = Cluster(hosts=4, ranks=1, rate=1e9, latency=1e-5, message=1e-6)


def test_buckets_are_closed_in_the_order_in_which_gradients_are_there():
    assert buckets(JOB) == [(2.0, 200), (3.0, 200), (4.0, 400)]
    assert buckets(replace(JOB, bucket_bytes=10**6)) == [(4.0, 800)]


def test_chunks_cover_their_bucket():
    assert chunks(JOB) == [(2.0, 150), (2.0, 50), (3.0, 150), (3.0, 50), (4.0, 150), (4.0, 150), (4.0, 100)]


@pytest.mark.parametrize("algorithm", ["direct", "ring", "halving_doubling"])
@pytest.mark.parametrize("members", [2, 4, 8])
def test_messages_are_those_of_the_engine(algorithm, members):
    sent = simulate.messages(algorithm, members)
    for member, row in enumerate(sent):
        assert sum(share for _, share, _ in row) == pytest.approx(2 * (members - 1) / members)
        assert all(to != member and 0 <= to < members for to, _, _ in row)
    longest = max(after for row in sent for _, _, after in row) + 1
    assert longest == {"direct": 2, "ring": 2 * (members - 1), "halving_doubling": 2 * math.log2(members)}[algorithm]


def test_the_sizes_of_a_real_job_are_the_engines():
    cluster = Cluster(hosts=64, ranks=8, rate=100e9, latency=1e-5, message=1e-6)
    job = simulate.real_job(MODELS["BERT-large"], cluster)
    assert sum(job.elements) == 335_141_888
    assert job.bucket_bytes > 25 * 2**20
    assert job.chunk_bytes == 4 * 2**20
    assert max(job.ready) == pytest.approx(job.compute)


def test_late_hosts_are_as_late_as_their_slowest_rank():
    few = simulate.lateness(2000, 1, 0.01, 2.0, seed=1)
    many = simulate.lateness(2000, 8, 0.01, 2.0, seed=1)
    assert min(few) == 0.0
    assert sum(many) / len(many) == pytest.approx(1.42 * 0.01 * 2.0, rel=0.05)  # the mean of the largest of eight


def test_buckets_one_after_another_wait_for_their_gradients():
    assert simulate.serial(JOB, lambda size: 0.5) == 4.5
    assert simulate.serial(JOB, lambda size: 2.0) == 8.0
    assert simulate.serial(replace(JOB, compute=9.0), lambda size: 2.0) == 9.0


def test_fitting_finds_where_a_function_has_a_value():
    assert simulate.bisected(lambda x: x**3, 8.0, 0.0, 10.0) == pytest.approx(2.0, abs=1e-3)


def test_errors_are_relative_to_what_was_measured():
    assert Checked("a row", measured=2.0, predicted=1.8, fitted=False).error == pytest.approx(-0.1)


@pytest.mark.skipif(
    shutil.which("c++") is None or not Path("/usr/include/simgrid/s4u.hpp").exists(), reason="needs libsimgrid-dev"
)
def test_flows_share_links():
    """Nothing but the wire costs: the bound is reached; latency, messages and late hosts come on top."""
    job = Job([10**6], [0.0], 0.0, bucket_bytes=10**7, chunk_bytes=2**18)
    wire = 2 * 3 / 4 * 4e6 * 8 / 1e9
    free = replace(LAN, latency=1e-9, message=0.0)
    assert simulate.simulate(job, free, algorithm="halving_doubling") == pytest.approx(wire, rel=0.01)
    assert simulate.simulate(job, LAN, algorithm="halving_doubling") > 1.002 * wire
    late = simulate.simulate(job, free, late=[0.0, 0.0, 1.0, 0.0], algorithm="halving_doubling")
    assert late == pytest.approx(1.0 + wire, rel=0.01)
    narrow = replace(free, leaf=2, uplink=0.25)
    assert simulate.simulate(job, narrow, algorithm="halving_doubling") > 1.5 * wire
    assert simulate.simulate(replace(job, compute=5.0), LAN) == 5.0

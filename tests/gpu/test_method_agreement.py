"""Which method the ranks come to (tf_ops/runtime/gpu/method_agreement.h): where one does not start, the next one."""

from __future__ import annotations

import re

import pytest

from tests.fake_gpu.gpu import count, left_clean
from tests.gpu.bucket_job import ALIVE
from tests.gpu.gpu_steps import TWO_NODES, UNEVEN, check, gradients, steps, sums
from tests.gpu.test_processes import SCRIPTS, environment
from tests.support.mpirun import Finished, launch

USED = "gradients on GPUs use the method "


def run(hosts: str, stage: str = "auto", **settings: str) -> Finished:
    """Two plans of a job with this rank on each host, whose ranks have a GPU each."""
    env = {**environment(stage), "FAKE_GPU_SHARED": "0", **settings}
    return launch([SCRIPTS / "gpu_auto.py", hosts], len(hosts), timeout=120, env=env)


def fallbacks(job: Finished) -> list[tuple[str, str, str]]:
    """The lines that say that another method is taken: which one, instead of which, and why."""
    return re.findall(USED + r"'(\S+)' and not '(\S+)': (.*)", job.output)


def told(job: Finished) -> set[str]:
    """What the ranks were told, one entry if all were told the same."""
    lines = re.findall(r"rank \d+ was told: (.*)", job.output)
    assert len(lines) == job.output.count(" was told: ")
    return set(lines)


@pytest.mark.parametrize("hosts", ["aa", "aab"])
def test_auto_takes_nccl_among_all_ranks(hosts):
    job = run(hosts).check()
    assert job.output.count("all sums are right") == len(hosts)
    assert job.output.count(f"{USED}'nccl'") == len(hosts)
    assert fallbacks(job) == []


@pytest.mark.parametrize(
    ("hosts", "failure", "methods", "why"),
    [
        ("aa", "id:2", ["host"], r"Rank 0 \(host a\): NCCL has failed in ncclGetUniqueId: .*no network"),
        ("aa", "init:1@1", ["host"], r"Rank 1 \(host a\): NCCL has failed in ncclCommInitRankConfig: .*joining fails"),
        (
            "aab",
            "start:5@2",
            ["nccl-node"],
            r"Rank 2 \(host b\): NCCL has failed in ncclCommInitRankConfig",
        ),
        ("aab", "id:2:1", ["nccl-node"], r"Rank 0 \(host a\): NCCL has failed in ncclGetUniqueId"),
        ("aabb", "init:2@3", ["nccl-node"], r"Rank 3 \(host b\): NCCL has failed in ncclCommInitRankConfig"),
        ("aab", "id:2", ["nccl-node", "host"], r"Rank 0 \(host a\): NCCL has failed in ncclGetUniqueId"),
        ("aab", "start:2@1", ["nccl-node", "host"], r"Rank 1 \(host a\): NCCL has failed in ncclCommInitRankConfig"),
    ],
)
def test_auto_goes_on_to_the_next_method_and_rank_0_says_why(hosts, failure, methods, why):
    job = run(hosts, FAKE_NCCL_FAIL=failure).check()
    assert job.seconds < 50  # nobody has waited until a start is given up, which is after 60 s
    assert job.output.count("all sums are right") == len(hosts)
    lines = fallbacks(job)
    assert [taken for taken, _, _ in lines] == methods
    assert [expected for _, expected, _ in lines] == ["nccl", *methods][: len(methods)]
    assert re.match(why, lines[0][2])


@pytest.mark.parametrize("shared", ["1", "slices"])
def test_ranks_on_one_gpu_or_on_slices_of_one_go_through_host_memory(shared):
    job = run("aa", FAKE_GPU_SHARED=shared).check()
    assert job.output.count("all sums are right") == 2
    ((taken, expected, why),) = fallbacks(job)
    assert (taken, expected) == ("host", "nccl")
    assert "rank 0 (host a) and rank 1 (host a) use the same GPU, " in why


@pytest.mark.parametrize(
    ("stage", "failure", "words"),
    [
        (
            "nccl",
            "id:2",
            "SMDDP_GPU_STAGE=nccl, but it does not start. Rank 0 (host a): NCCL has failed in",
        ),
        ("nccl", "start:5@2", "but it does not start. Rank 2 (host b): NCCL has failed in ncclCommInitRankConfig"),
        ("nccl-node", "init:2@1", "SMDDP_GPU_STAGE=nccl-node, but it does not start. Rank 1 (host a): NCCL has failed"),
    ],
)
def test_a_method_asked_for_by_name_that_does_not_start_is_an_error(stage, failure, words):
    job = run("aab", stage, FAKE_NCCL_FAIL=failure)
    assert not job.timed_out
    (line,) = told(job)
    assert words in line
    assert "all sums are right" not in job.output


@pytest.mark.parametrize(
    ("hosts", "stage", "devices", "ids"),
    [
        (TWO_NODES, "auto", [0, 1, 2, 3], 1),
        (TWO_NODES, "nccl-node", [0, 1, 2, 3], 2),
        (UNEVEN, "nccl-node", [0, 1, 2], 1),  # one node has a rank alone, which needs no group
        (UNEVEN, "auto", [0, 0, 0], 0),
        (UNEVEN, "host", [0, 1, 2], 0),
    ],
)
def test_an_id_is_made_only_for_nccl_and_once(hosts, stage, devices, ids):
    before = count("ids")
    arrays = gradients(len(hosts))
    expected = [sum_ * len(hosts) for sum_ in sums(arrays)]  # of two steps
    with left_clean(ALIVE, DEVICES="4"):
        assert steps(hosts, arrays, device_of_rank=devices, stage=stage, steps=2) == [""] * len(hosts)
    check(arrays, expected)
    assert count("ids") - before == ids


@pytest.mark.parametrize("wanted", ["auto", "nccl"])
def test_a_start_that_never_ends_is_given_up(wanted, monkeypatch):
    monkeypatch.setenv("FAKE_NCCL_APART", "1")
    monkeypatch.setenv("SMDDP_START_TIMEOUT", "1")
    arrays = gradients(3)
    expected = sums(arrays)
    with left_clean(ALIVE, DEVICES="4"):
        errors = steps(UNEVEN, arrays, stage=wanted, device_of_rank=[0, 1, 2])
    if wanted == "auto":
        assert errors == [""] * 3
        check(arrays, expected)
    else:
        assert len(set(errors)) == 1
        assert "NCCL has not connected the ranks within 1 s" in errors[0]


def test_sums_in_8_bits_stay_in_8_bits_with_nccl():
    """NCCL among all ranks has no 8 bits between nodes: they go through host memory, with the rounding of 8 bits."""
    arrays = gradients(4, (40_000, 20_000))
    expected = sums(arrays)
    launched = count("launched")
    with left_clean(ALIVE, DEVICES="4"):
        assert steps(TWO_NODES, arrays, device_of_rank=range(4), wire_dtype="int8", chunk_bytes=65536) == [""] * 4
    assert count("launched") == launched
    assert 1e-3 < abs(arrays[0][0] - expected[0]).mean() < 0.05

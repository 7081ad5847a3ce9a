"""Ranks as processes: the agreement over MPI, NCCL's members."""

from pathlib import Path

import pytest

from tests import fake_gpu
from tests.support.mpirun import launch

SCRIPTS = Path(__file__).parent / "scripts"
SMALL = {"SMDDP_BUCKET_BYTES": "16384", "SMDDP_CHUNK_BYTES": "4096"}  # many buckets, of many chunks
GPUS_OF_THEIR_OWN = {"FAKE_GPU_SHARED": "0"}


def environment(stage):
    return {
        **SMALL,
        "SMDDP_GPU_STAGE": stage,
        "SMDDP_LOG_LEVEL": "info",
        "SMDDP_GPU_LIBRARY": str(fake_gpu.build()),
        "SMDDP_NCCL_LIBRARY": str(fake_gpu.build_nccl()),
        "FAKE_GPU_DELAY_US": "100",
        **({} if stage == "host" else GPUS_OF_THEIR_OWN),
    }


def told(job, rank, step):
    """The one line in which a rank says how its step ended."""
    lines = [line for line in job.output.splitlines() if line.startswith(f"rank {rank} was told in step {step}: ")]
    assert len(lines) == 1, job.output
    return lines[0]


@pytest.mark.parametrize(
    ("stage", "hosts"), [("host", "aaa"), ("nccl", "aab"), ("nccl", "aabb"), ("nccl-node", "aab")], ids=str
)
def test_training_sets_join_and_a_second_session(stage, hosts):
    job = launch([SCRIPTS / "gpu_ranks.py", hosts], len(hosts), timeout=120, env=environment(stage)).check()
    assert job.output.count("all sums are right") == 2 * len(hosts)
    assert (f"use the method '{stage}'" in job.output) is (stage != "host")  # there is nothing to agree on about that


@pytest.mark.parametrize("hosts", ["aaa", "aab"])
def test_a_rank_that_dies_is_named_and_its_step_reaches_nobody(hosts, tmp_path):
    flags = ["--with-ft", "ulfm"]  # else mpirun ends the others before they can say anything
    job = launch([SCRIPTS / "gpu_killed.py", hosts, tmp_path], 3, timeout=120, env=environment("nccl"), flags=flags)
    assert not job.timed_out
    for rank in (0, 2):
        assert "Rank 1" in told(job, rank, step=5)


def test_a_rank_that_brings_no_gradients_is_noticed(tmp_path):
    """NCCL's kernels wait for it, with nobody on the host who does."""
    limited = {**environment("nccl"), "SMDDP_STALL_ERROR_SECONDS": "4"}
    job = launch([SCRIPTS / "gpu_late.py", tmp_path], 2, timeout=120, env=limited)
    assert not job.timed_out
    words = told(job, 0, step=2)
    assert "gradient bucket" in words
    assert "did not finish within 4 s" in words


@pytest.mark.parametrize(
    ("stage", "hosts"), [("host", "aaa"), ("nccl-node", "aaa"), ("nccl", "aaa"), ("nccl", "aba")], ids=str
)
def test_sets_that_reduce_in_another_order_on_each_rank_do_not_wait_for_one_another(stage, hosts):
    sets = {
        **environment(stage),
        "SMDDP_DYNAMIC_PROCESS_SETS": "1",
        "SMDDP_STALL_ERROR_SECONDS": "20",
        "FAKE_GPU_DELAY_US": "0",
    }
    job = launch([SCRIPTS / "gpu_two_sets.py", hosts], 3, timeout=60, env=sets).check()
    assert job.output.count("all sums are right") == 3

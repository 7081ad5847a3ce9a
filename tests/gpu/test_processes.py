"""Ranks as processes: the agreement over MPI, memory that one process lends to another, NCCL's members."""

from pathlib import Path

import pytest

from tests import fake_gpu
from tests.launch.mpirun import launch

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
        **(GPUS_OF_THEIR_OWN if stage == "nccl" else {}),
    }


@pytest.mark.parametrize(
    ("stage", "hosts"), [("host", "aaa"), ("ipc", "aab"), ("nccl", "aabb")], ids=["host", "ipc", "nccl"]
)
def test_training_sets_join_and_a_second_session(stage, hosts):
    job = launch([SCRIPTS / "gpu_ranks.py", hosts], len(hosts), timeout=120, env=environment(stage)).check()
    assert job.output.count("all sums are right") == 2 * len(hosts)
    assert (f"take the way '{stage}'" in job.output) is (stage != "host")  # there is nothing to agree on about that


@pytest.mark.parametrize("stage", ["ipc", "nccl"])
def test_a_rank_that_dies_is_named_and_its_step_reaches_nobody(stage):
    flags = ["--with-ft", "ulfm"]  # else mpirun ends the others before they can say anything
    job = launch([SCRIPTS / "gpu_killed.py"], 3, timeout=120, env=environment(stage), flags=flags)
    assert not job.timed_out
    for rank in (0, 2):
        told = [line for line in job.output.splitlines() if line.startswith(f"rank {rank} was told in step 5: ")]
        assert len(told) == 1, job.output
        assert "Rank 1" in told[0]


def test_a_rank_that_brings_no_gradients_is_noticed():
    """NCCL's kernels wait for it, with nobody on the host who does."""
    job = launch(
        [SCRIPTS / "gpu_late.py"], 2, timeout=120, env={**environment("nccl"), "SMDDP_STALL_ERROR_SECONDS": "1"}
    )
    assert not job.timed_out
    told = [line for line in job.output.splitlines() if line.startswith("rank 0 was told in step 2: ")]
    assert len(told) == 1, job.output
    assert "gradient bucket" in told[0]
    assert "did not finish within 1 s" in told[0]

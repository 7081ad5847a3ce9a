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


def told(job, rank, step):
    """The one line in which a rank says how its step ended."""
    lines = [line for line in job.output.splitlines() if line.startswith(f"rank {rank} was told in step {step}: ")]
    assert len(lines) == 1, job.output
    return lines[0]


@pytest.mark.parametrize(
    ("stage", "hosts"), [("host", "aaa"), ("ipc", "aab"), ("nccl", "aabb")], ids=["host", "ipc", "nccl"]
)
def test_training_sets_join_and_a_second_session(stage, hosts):
    job = launch([SCRIPTS / "gpu_ranks.py", hosts], len(hosts), timeout=120, env=environment(stage)).check()
    assert job.output.count("all sums are right") == 2 * len(hosts)
    assert (f"use the method '{stage}'" in job.output) is (stage != "host")  # there is nothing to agree on about that


# What a CUDA-aware MPI can do: reach the memory of a GPU.
DIRECT = {"SMDDP_GPU_DIRECT": "on", "FAKE_GPU_OPEN": "1"}


@pytest.mark.parametrize(("stage", "hosts"), [("ipc", "aabbc"), ("nccl", "aabb")], ids=["ipc", "nccl"])
def test_gpu_direct_over_mpi(stage, hosts):
    job = launch(
        [SCRIPTS / "gpu_ranks.py", hosts], len(hosts), timeout=120, env={**environment(stage), **DIRECT}
    ).check()
    assert job.output.count("all sums are right") == 2 * len(hosts)
    assert f"use the method '{stage}', and between nodes from GPU to GPU" in job.output
    assert "SMDDP_GPU_DIRECT=on, but MPI does not report that it is CUDA-aware" in job.output


@pytest.mark.parametrize(("answer", "setting"), [("1", "auto"), ("0", "auto"), ("1", "off")])
def test_gpu_direct_where_mpi_says_that_it_can(answer, setting, tmp_path):
    """An MPI that says so, in front of the real one."""
    says = fake_gpu.compile_library(f"libsays_{answer}", [write_answer(tmp_path, answer)])
    env = {**environment("ipc"), **DIRECT, "SMDDP_GPU_DIRECT": setting, "LD_PRELOAD": str(says)}
    job = launch([SCRIPTS / "gpu_ranks.py", "abb"], 3, timeout=120, env=env, flags=["-x", "LD_PRELOAD"]).check()
    assert "use the method 'ipc'" in job.output, job.output
    assert ("from GPU to GPU" in job.output) is (answer == "1" and setting == "auto")
    assert "does not say that it is CUDA-aware" not in job.output


def write_answer(folder, answer):
    source = folder / f"says_{answer}.cc"
    source.write_text(
        f'extern "C" __attribute__((visibility("default"))) int MPIX_Query_cuda_support(void) {{return {answer};}}\n'
    )
    return source


def test_a_rank_of_another_node_that_dies_in_a_direct_exchange():
    env = {**environment("ipc"), **DIRECT}
    flags = ["--with-ft", "ulfm"]  # else mpirun ends the others before they can say anything
    job = launch([SCRIPTS / "gpu_killed.py", "abc"], 3, timeout=120, env=env, flags=flags)
    assert not job.timed_out
    assert "from GPU to GPU" in job.output
    for rank in (0, 2):
        words = told(job, rank, step=5)
        assert "Rank 1" in words or "rank 1" in words


@pytest.mark.parametrize("stage", ["ipc", "nccl"])
def test_a_rank_that_dies_is_named_and_its_step_reaches_nobody(stage):
    flags = ["--with-ft", "ulfm"]  # else mpirun ends the others before they can say anything
    job = launch([SCRIPTS / "gpu_killed.py"], 3, timeout=120, env=environment(stage), flags=flags)
    assert not job.timed_out
    for rank in (0, 2):
        assert "Rank 1" in told(job, rank, step=5)


def test_a_rank_that_brings_no_gradients_is_noticed():
    """NCCL's kernels wait for it, with nobody on the host who does."""
    job = launch(
        [SCRIPTS / "gpu_late.py"], 2, timeout=120, env={**environment("nccl"), "SMDDP_STALL_ERROR_SECONDS": "1"}
    )
    assert not job.timed_out
    words = told(job, 0, step=2)
    assert "gradient bucket" in words
    assert "did not finish within 1 s" in words

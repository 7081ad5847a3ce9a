"""Ranks as processes: the agreement over MPI, memory that one process lends to another, NCCL's members."""

from pathlib import Path

import pytest

from tests import fake_gpu
from tests.launch.mpirun import launch

SCRIPT = Path(__file__).parent / "scripts" / "gpu_ranks.py"
SMALL = {"SMDDP_BUCKET_BYTES": "16384", "SMDDP_CHUNK_BYTES": "4096"}  # many buckets, of many chunks
GPUS_OF_THEIR_OWN = {"FAKE_GPU_SHARED": "0"}


@pytest.mark.parametrize(
    ("stage", "hosts"), [("host", "aaa"), ("ipc", "aab"), ("nccl", "aabb")], ids=["host", "ipc", "nccl"]
)
def test_training_sets_join_and_a_second_session(stage, hosts):
    env = {
        **SMALL,
        "SMDDP_GPU_STAGE": stage,
        "SMDDP_LOG_LEVEL": "info",
        "SMDDP_GPU_LIBRARY": str(fake_gpu.build()),
        "SMDDP_NCCL_LIBRARY": str(fake_gpu.build_nccl()),
        "FAKE_GPU_DELAY_US": "100",
        **(GPUS_OF_THEIR_OWN if stage == "nccl" else {}),
    }
    output = launch([SCRIPT, hosts], len(hosts), timeout=120, env=env).check().output
    assert output.count("all sums are right") == 2 * len(hosts)
    assert (f"take the way '{stage}'" in output) is (stage != "host")  # there is nothing to agree on about that

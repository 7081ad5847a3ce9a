"""TensorFlow's kernels for GPUs and XLA's custom call for CUDA, with ranks under mpirun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import fake_gpu, gpu_ops
from tests.support import mpirun

SCRIPTS = Path(__file__).resolve().parent / "scripts"
SECONDS = 300.0


@pytest.fixture(scope="module")
def libraries():
    fake, device, call = gpu_ops.build()
    return {"SMDDP_GPU_LIBRARY": str(fake), "FAKE_TF_DEVICE": str(device), "FAKE_XLA_CALL": str(call)}


def run(libraries, script, *arguments, ranks=2, **more):
    env = {**libraries, "FAKE_GPU_DEVICES": "1", "FAKE_GPU_DELAY_US": "300", "FAKE_GPU_PAGEABLE": "later", **more}
    return mpirun.launch([SCRIPTS / script, *arguments], ranks=ranks, timeout=SECONDS, env=env).check().output


@pytest.mark.parametrize("stage", ["host", "auto"])
def test_every_op_on_a_gpu(libraries, stage):
    assert run(libraries, "tf_ranks.py", "reachable", SMDDP_GPU_STAGE=stage).count("is through") == 2


def test_tensorflow_copies_what_cannot_be_reached(libraries):
    assert run(libraries, "tf_ranks.py", "unreachable").count("is through") == 2


def test_a_gpu_of_another_maker_is_refused(libraries):
    assert "refused" in run(libraries, "tf_ranks.py", "pluggable", ranks=None, FAKE_TF_PLUGGABLE="1")


def test_a_step_that_fails_while_its_tensor_is_copied_to_the_host(libraries):
    output = run(libraries, "tf_cancelled.py", FAKE_GPU_DELAY_US="500000")
    told = {rank: output.split(f"rank {rank} was told ")[1].splitlines()[0] for rank in (0, 1)}
    assert "deliberate" in told[0]
    assert "[smddp:step_given_up]" in told[1]


@pytest.mark.parametrize("stage", ["host", "nccl"])
def test_the_custom_call_of_xla(libraries, stage):
    nccl = {"SMDDP_NCCL_LIBRARY": str(fake_gpu.build_nccl()), "FAKE_GPU_SHARED": "0"}  # a GPU for each rank
    assert run(libraries, "xla_ranks.py", SMDDP_GPU_STAGE=stage, **nccl).count("is through") == 2

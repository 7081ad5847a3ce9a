"""SageMaker's own training toolkit starts our jobs, on two hosts of the lab. Run by `make test-sagemaker`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lab import ROOT, Lab, why_not
from tests.sagemaker.cluster import TOOLKIT, Cluster, Ended

EXAMPLE = ROOT / "examples" / "sagemaker"
SOURCE = (Path(__file__).with_name("tell.py"), EXAMPLE / "train.py", EXAMPLE / "requirements.txt")
# What the Python SDK makes of distribution={"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options":
# ...}}} and of distribution={"mpi": {"enabled": True, "processes_per_host": 1, "custom_mpi_options": ...}}.
SMDISTRIBUTED = {
    "sagemaker_distributed_dataparallel_enabled": True,
    "sagemaker_distributed_dataparallel_custom_mpi_options": "-verbose -x NCCL_DEBUG=VERSION -x GIVEN=yes",
    "sagemaker_instance_type": "ml.c5.xlarge",
}
MPI = {
    "sagemaker_mpi_enabled": True,
    "sagemaker_mpi_num_of_processes_per_host": 1,
    "sagemaker_mpi_custom_mpi_options": "-verbose -x NCCL_DEBUG=VERSION -x GIVEN=yes",
}
# The container of docker/Dockerfile.sagemaker: the toolkit, its part for TensorFlow, and Open MPI 4 as a wheel.
CONTAINER = {
    "SAGEMAKER_TRAINING_MODULE": "sagemaker_tensorflow_container.training:main",
    "OPAL_PREFIX": str(TOOLKIT.parent),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = why_not() or next((f"no {file}" for file in ("/usr/sbin/sshd", TOOLKIT) if not Path(file).exists()), "")
    if reason:
        pytest.skip(f"no hosts with SageMaker's toolkit here: {reason}")
    with Lab(2, 200) as lab:
        yield Cluster(lab, tmp_path_factory.mktemp("sagemaker"))


def told(ended: Ended) -> dict[int, dict[str, Any]]:
    """What the ranks have printed of themselves."""
    lines = [line for text in ended.outputs for line in re.findall(r"told (\{.*\})", text)]
    return {int(of_rank["RANK"]): of_rank for of_rank in map(json.loads, lines)}


def check_trained(ended: Ended, epochs: int) -> None:
    """The files of SageMaker's folders, and that two ranks have trained together."""
    output = "\n".join(ended.outputs)
    assert ended.codes == [0, 0], output
    losses = json.loads((ended.ml[0] / "output/data/losses.json").read_text())
    assert len(losses) == epochs
    assert losses[-1] < losses[0]
    for rank in range(2):
        assert f"rank {rank} of 2: loss {losses[0]:.3f} -> {losses[-1]:.3f}" in output
    assert (ended.ml[0] / "model/model.keras").stat().st_size > 0
    assert {file.name for file in (ended.ml[0] / "checkpoints").iterdir()} == {
        f"epoch-{epoch + 1}.keras" for epoch in range(epochs)
    }
    assert not list((ended.ml[1] / "model").iterdir())


def test_smdistributed_on_two_hosts(cluster: Cluster) -> None:
    ended = cluster.train(2, SOURCE, {**SMDISTRIBUTED, "epochs": 3, "learning-rate": 0.02}, CONTAINER)
    check_trained(ended, 3)
    ranks = told(ended)
    for rank in range(2):
        assert ranks[rank] == {
            "host": f"node{rank}", "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "node0",
            "MASTER_PORT": "29500", "NCCL_DEBUG": "VERSION", "GIVEN": "yes", "SM_CURRENT_HOST": f"node{rank}",
            "SM_HP_EPOCHS": "3", "SM_CHANNEL_TRAIN": "/opt/ml/input/data/train", "SM_MODEL_DIR": "/opt/ml/model",
            "SMDATAPARALLEL_LOCAL_RANK": "0", "OMPI_MCA_pml": "ob1",
        }  # fmt: skip
    for ml in ended.ml:
        assert (ml / "output/success").exists()
        assert not (ml / "output/failure").exists()
    assert "Installing dependencies from requirements.txt" in ended.outputs[0]
    assert "tell.py --epochs 3 --learning-rate 0.02" in ended.outputs[0]


def test_mpi_on_two_hosts(cluster: Cluster) -> None:
    ended = cluster.train(2, SOURCE, {**MPI, "epochs": 2}, CONTAINER)
    assert "smddprun" not in ended.outputs[0].split("Invoking script")[1].splitlines()[2]
    check_trained(ended, 2)


def test_a_rank_that_fails(cluster: Cluster) -> None:
    given = {**SMDISTRIBUTED, "sagemaker_mpi_num_of_processes_per_host": 2, "epochs": 1, "fail": 1}
    ended = cluster.train(1, SOURCE, given, CONTAINER)
    assert ended.codes == [1], ended.outputs
    failure = (ended.ml[0] / "output/failure").read_text()
    assert "ExitCode 1" in failure
    # The toolkit ends a line, and drops its colons, wherever a read from the pipe ends.
    assert re.search(r"ValueError:?\s+rank 1 is broken", failure), failure
    assert not (ended.ml[0] / "output/success").exists()


def test_libfabric_on_two_hosts(cluster: Cluster) -> None:
    """As for EFA, with libfabric's provider for TCP."""
    options = "-x SMDDP_FABRIC=ofi -x 'FI_PROVIDER=tcp;ofi_rxm'"
    given = {**SMDISTRIBUTED, "sagemaker_distributed_dataparallel_custom_mpi_options": options, "epochs": 2}
    ended = cluster.train(2, SOURCE, given, CONTAINER)
    check_trained(ended, 2)
    assert all(of_rank["OMPI_MCA_pml"] == "cm" for of_rank in told(ended).values())

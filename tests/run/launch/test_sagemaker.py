"""Ranks that SageMaker's training toolkit has started, and a container whose job nobody starts."""

from __future__ import annotations

import json

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch import sagemaker
from smddp_tf.run.launch.sagemaker import variables_of_ranks
from tests.run.run_dry import DryRun, error_of, values_of

SMDDP, MPI = "sagemaker_distributed_dataparallel_custom_mpi_options", "sagemaker_mpi_custom_mpi_options"


def ranks_of(options: str, key: str = SMDDP, **more: str) -> dict[str, str]:
    """The environment of a rank of a job with these `custom_mpi_options`."""
    return {"SM_HOSTS": '["algo-2", "algo-1"]', "SM_FRAMEWORK_PARAMS": json.dumps({key: options}), **more}


MEETING = {"MASTER_ADDR": "algo-1", "MASTER_PORT": "29500"}


def test_nothing_elsewhere() -> None:
    assert variables_of_ranks({"SM_FRAMEWORK_PARAMS": "{}"}) == {}


@pytest.mark.parametrize("key", [SMDDP, MPI])
def test_the_users_variables_win(key: str) -> None:
    given = ranks_of("-verbose --NCCL_DEBUG WARN -x A=1 -x PATH -x 'B=two words'", key)
    assert variables_of_ranks(given) == {**MEETING, "A": "1", "B": "two words"}


def test_what_a_rank_has_stays() -> None:
    assert variables_of_ranks(ranks_of("", MASTER_ADDR="h", MASTER_PORT="7")) == {}
    assert variables_of_ranks({"SM_HOSTS": '["b"]', "MASTER_PORT": "7"}) == {"MASTER_ADDR": "b"}


@pytest.mark.parametrize("given", [ranks_of("-x SMDDP_FABRIC=ofi"), ranks_of("", SMDDP_FABRIC="ofi")])
def test_efa(given: dict[str, str]) -> None:
    """The toolkit's line has `-mca pml ob1`, and `FI_PROVIDER=efa`."""
    parameters = {"pml": "cm", "mtl": "ofi", "opal_common_ofi_provider_include": "efa"}
    found = variables_of_ranks({**given, "FI_PROVIDER": "efa"})
    assert {name: value for name, value in found.items() if name.startswith("OMPI_MCA")} == {
        f"OMPI_MCA_{name}": value for name, value in parameters.items()
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (ranks_of("-x A='b"), "custom_mpi_options: No closing quotation"),
        (ranks_of("-x SMDDP_FABRIC=efa"), "SMDDP_FABRIC must be one of auto, tcp, ofi, ucx. Received: 'efa'"),
        ({"SM_HOSTS": "x"}, "SM_HOSTS must be a JSON list"),
        ({"SM_HOSTS": "[]"}, "SM_HOSTS must be a JSON list"),
        ({"SM_HOSTS": '["a"]', "SM_FRAMEWORK_PARAMS": "[]"}, "SM_FRAMEWORK_PARAMS must be a JSON object"),
    ],
)
def test_invalid_variables(given: dict[str, str], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        variables_of_ranks(given)


def test_a_container_without_the_toolkit(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setenv("SM_HOSTS", '["a"]')
    assert "sagemaker-training" in error_of(capsys, "train.py")
    monkeypatch.delenv("SM_HOSTS")
    monkeypatch.setattr(sagemaker, "RESOURCES", tmp_path / "resourceconfig.json")
    sagemaker.RESOURCES.write_text("{}")
    assert "docker/Dockerfile.sagemaker" in error_of(capsys, "train.py")


def test_a_job_of_one_host_there_is_started(monkeypatch, capsys) -> None:
    assert values_of(DryRun(monkeypatch, capsys)("-np", "2", "t", env={"SM_HOSTS": '["a"]'}), "-H") == ["localhost:2"]


def test_the_variable_for_the_fabric(monkeypatch, capsys) -> None:
    words = DryRun(monkeypatch, capsys)("-np", "2", "t", env={"SMDDP_FABRIC": "ofi"})
    assert "mtl ofi" in values_of(words, "--mca", 2)

"""Jobs in SageMaker's containers: ranks that its toolkit has started, and containers without the toolkit."""

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
    own = {"SM_HOSTS": '["algo-2", "algo-1"]', "SM_CURRENT_HOST": "algo-1"}
    return {**own, "SM_FRAMEWORK_PARAMS": json.dumps({key: options}), **more}


RENDEZVOUS = {"MASTER_ADDR": "algo-1", "MASTER_PORT": "29500"}


def test_nothing_elsewhere() -> None:
    assert variables_of_ranks({"SM_FRAMEWORK_PARAMS": "{}"}) == {}


@pytest.mark.parametrize("key", [SMDDP, MPI])
def test_the_users_variables_win(key: str) -> None:
    given = ranks_of("-verbose --NCCL_DEBUG WARN -x A=1 -x PATH -x 'B=two words'", key)
    assert variables_of_ranks(given) == {**RENDEZVOUS, "A": "1", "B": "two words"}


def test_what_a_rank_has_stays() -> None:
    assert variables_of_ranks(ranks_of("", MASTER_ADDR="h", MASTER_PORT="7")) == {}
    one = {"SM_HOSTS": '["b"]', "SM_CURRENT_HOST": "b", "MASTER_PORT": "7"}
    assert variables_of_ranks(one) == {"MASTER_ADDR": "b"}


@pytest.mark.parametrize(
    "given",
    [ranks_of("-x SMDDP_FABRIC=ofi"), ranks_of("", SMDDP_FABRIC="ofi"), ranks_of("-x SMDDP_FABRIC=ofi -x FI_PROVIDER")],
)
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
        (ranks_of("", SM_HOSTS="x"), "SM_HOSTS must be a JSON list"),
        (ranks_of("", SM_HOSTS="[]"), "SM_HOSTS must be a JSON list"),
        (ranks_of("", SM_FRAMEWORK_PARAMS="[]"), "SM_FRAMEWORK_PARAMS must hold a JSON object"),
    ],
)
def test_invalid_variables(given: dict[str, str], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        variables_of_ranks(given)


def test_the_groups_of_instances_that_take_part() -> None:
    groups = [{"instance_group_name": "gpus", "hosts": ["c", "b"]}, {"instance_group_name": "cpus", "hosts": ["a"]}]
    given = {
        "SM_HOSTS": '["a", "b", "c"]',
        "SM_RESOURCE_CONFIG": json.dumps({"instance_groups": groups}),
        "SM_FRAMEWORK_PARAMS": json.dumps({"sagemaker_distribution_instance_groups": ["gpus"]}),
    }
    assert variables_of_ranks(given)["MASTER_ADDR"] == "b"
    assert variables_of_ranks({**given, "SM_FRAMEWORK_PARAMS": "{}"})["MASTER_ADDR"] == "a"


def test_without_the_toolkit_nobody_starts_the_job(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(sagemaker, "RESOURCES", tmp_path / "resourceconfig.json")
    sagemaker.refuse_without_toolkit({"SM_HOSTS": ""})
    sagemaker.RESOURCES.write_text("{}")
    said = error_of(capsys, "train.py")
    assert "a SageMaker job, which its training toolkit starts" in said
    assert "docker/Dockerfile.sagemaker" in said
    assert "smddprun -np N" in said


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys)


def test_an_explicit_job_is_not_sagemakers(dry_run: DryRun) -> None:
    line = dry_run("-np", "2", "t", env={"SM_HOSTS": '["a", "b"]', "SM_CURRENT_HOST": "a"})
    assert values_of(line, "-H") == ["localhost:2"]


def test_the_variable_for_the_fabric(dry_run: DryRun) -> None:
    words = dry_run("-np", "2", "t", env={"SMDDP_FABRIC": "ofi"})
    assert "mtl ofi" in values_of(words, "--mca", 2)

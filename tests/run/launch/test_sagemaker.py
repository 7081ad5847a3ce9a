"""Jobs in SageMaker's containers: ranks that its toolkit has started, and one host without the toolkit."""

from __future__ import annotations

import json
import sys

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run import cli
from smddp_tf.run.launch import sagemaker
from smddp_tf.run.launch.job import Outcome
from smddp_tf.run.launch.sagemaker import (
    Training,
    flags_of,
    parameters_of_distribution,
    read_training,
    variables_of_ranks,
)
from smddp_tf.link.ends import End
from tests.run.run_dry import OPEN_MPI_5, DryRun, error_of, values_of

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
        (ranks_of("", SM_CURRENT_HOST="z"), "SM_CURRENT_HOST='z' is not one of the hosts"),
        (ranks_of("", SM_FRAMEWORK_PARAMS="[]"), "SM_FRAMEWORK_PARAMS must hold a JSON object"),
        (ranks_of("", SM_HPS="["), "SM_HPS must hold a JSON object"),
    ],
)
def test_invalid_variables(given: dict[str, str], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        variables_of_ranks(given)


ONE_HOST = {
    "SM_HOSTS": '["algo-1"]',
    "SM_CURRENT_HOST": "algo-1",
    "SM_NUM_GPUS": "2",
    "SM_HPS": json.dumps(
        {"learning-rate": 0.1, "b": 32, "amp": "", "sizes": {"y": 2, "x": "1"}, "sagemaker_region": "r"}
    ),
    "SM_USER_ENTRY_POINT": "train.py",
}


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    return DryRun(monkeypatch, capsys)


def test_one_host_without_the_toolkit(dry_run: DryRun) -> None:
    line = dry_run(env=ONE_HOST)
    assert values_of(line, "-H") == ["localhost:2"]
    assert line[-9:] == [
        sys.executable,
        "train.py",
        "--amp",
        "-b",
        "32",
        "--learning-rate",
        "0.1",
        "--sizes",
        "x=1,y=2",
    ]
    assert dry_run("train.py", env=ONE_HOST)[-8:] == line[-8:]
    assert dry_run("python", "train.py", env=ONE_HOST)[-9:] == ["python", *line[-8:]]
    assert dry_run("train.py", "--own", "1", env=ONE_HOST)[-3:] == ["train.py", "--own", "1"]


@pytest.mark.parametrize("place", ["SM_FRAMEWORK_PARAMS", "SM_HPS", "SM_DISTRIBUTION"])
def test_options_of_the_distribution(dry_run: DryRun, place: str) -> None:
    options = "-x FOO='two words' --mca btl_tcp_if_include lo"
    own = {MPI: options, "sagemaker_mpi_num_of_processes_per_host": 3}
    of_sdk = {"mpi": {"enabled": True, "custom_mpi_options": options, "processes_per_host": 3}}
    given = json.dumps(of_sdk if place == "SM_DISTRIBUTION" else own)
    line = dry_run(env={**ONE_HOST, "SM_HPS": "{}", place: given})
    assert "FOO=two words" in values_of(line, "-x")
    assert values_of(line, "-np") == ["3"]
    assert values_of(line, "--mca", 2).count("btl_tcp_if_include lo") == 1


def test_flags_of_the_launcher_count_too(dry_run: DryRun) -> None:
    line = dry_run("--autotune", "-x", "TOKEN=s3cret", env=ONE_HOST)
    at = line.index(OPEN_MPI_5.mpirun)
    assert {"HOROVOD_AUTOTUNE=1", "TOKEN=s3cret"} <= set(line[:at])
    assert not [word for word in line[at:] if "s3cret" in word]


def test_flags_are_sorted_and_decoded() -> None:
    given = {"z": '"text"', "epochs": "3", "flag": '""', "on": True, "list": [1, 2], "d": '{"b": 2, "a": 1}'}
    assert flags_of(given) == [
        "-d", "a=1,b=2", "--epochs", "3", "--flag", "--list", "[1, 2]", "--on", "True", "-z", "text",
    ]  # fmt: skip


def test_the_toolkits_own_flags_win() -> None:
    assert read_training({**ONE_HOST, "SM_USER_ARGS": '["--a", "", "1"]'}).arguments == ("--a", "1")
    with pytest.raises(LaunchError, match="SM_USER_ARGS must be a JSON list"):
        read_training({**ONE_HOST, "SM_USER_ARGS": "{}"})


def test_distribution_of_the_estimator() -> None:
    distribution = {"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": "-verbose"}}}
    for place in ({"SM_DISTRIBUTION": json.dumps(distribution)},
                  {"SM_HPS": json.dumps({"distribution": json.dumps(distribution), "a": 1})}):  # fmt: skip
        training = read_training({"SM_HOSTS": '["a"]', "SM_CURRENT_HOST": "a", **place})
        assert training.custom_mpi_options == "-verbose"
        assert "--distribution" not in training.arguments
    with pytest.raises(LaunchError, match="dataparallel"):
        parameters_of_distribution({"smdistributed": {"modelparallel": {}}})


def test_files_of_the_container(tmp_path) -> None:
    """And the groups of instances that take part."""
    parameters = {
        "lr": "0.5", "sagemaker_program": '"go.py"', "sagemaker_mpi_num_of_processes_per_host": "4",
        "sagemaker_distribution_instance_groups": '["gpus"]',
    }  # fmt: skip
    (tmp_path / "hyperparameters.json").write_text(json.dumps(parameters))
    groups = [{"instance_group_name": "gpus", "hosts": ["b", "c"]}, {"instance_group_name": "cpus", "hosts": ["a"]}]
    resources = {"hosts": ["a", "b", "c"], "current_host": "c", "instance_groups": groups}
    (tmp_path / "resourceconfig.json").write_text(json.dumps(resources))
    training = read_training({"SM_NUM_GPUS": "8"}, tmp_path)
    assert training == Training(("b", "c"), 4, program="go.py", arguments=("--lr", "0.5"))
    assert training.leader == "b"


def test_where_it_is_told_from_other_machines(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sagemaker, "CONFIG", tmp_path)
    assert sagemaker.inside_training(ONE_HOST)
    assert not sagemaker.inside_training({"SM_HOSTS": "[]"})
    (tmp_path / "resourceconfig.json").write_text("{}")
    assert sagemaker.inside_training({})


def test_several_hosts_are_the_toolkits(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(sagemaker, "FAILURE", tmp_path / "failure")
    for name, value in ranks_of("").items():
        monkeypatch.setenv(name, value)
    said = error_of(capsys, "train.py")
    assert "a SageMaker job of 2 hosts, which its training toolkit starts" in said
    assert "docker/Dockerfile.sagemaker" in said
    assert "2 hosts" in sagemaker.FAILURE.read_text()


def test_nothing_to_run(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(sagemaker, "FAILURE", tmp_path / "none" / "failure")  # outside of a container
    for name, value in {**ONE_HOST, "SM_USER_ENTRY_POINT": ""}.items():
        monkeypatch.setenv(name, value)
    assert "There is nothing to run." in error_of(capsys)


def test_the_reason_of_a_failure_is_left_where_sagemaker_looks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sagemaker, "FAILURE", tmp_path / "failure")
    outcome = Outcome(
        1, 1, "algo-1", End(1, raised="ValueError: mine"), report="rank 1 on algo-1 ended. Its traceback:\nT"
    )
    monkeypatch.setattr("smddp_tf.run.launch.launch.launch", lambda *_: outcome)
    for name, value in ONE_HOST.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        cli.main(["train.py"])
    assert ended.value.code == 1
    assert sagemaker.FAILURE.read_text() == f"ValueError: mine\n{outcome.report}\n"


def test_an_explicit_job_is_not_sagemakers(dry_run: DryRun) -> None:
    assert values_of(dry_run("-np", "2", "t", env={**ONE_HOST, "SM_HOSTS": '["a", "b"]'}), "-H") == ["localhost:2"]


def test_the_variable_for_the_fabric(monkeypatch, capsys) -> None:
    words = DryRun(monkeypatch, capsys)("-np", "2", "t", env={"SMDDP_FABRIC": "ofi"})
    assert "mtl ofi" in values_of(words, "--mca", 2)

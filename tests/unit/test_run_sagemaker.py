"""Inside a SageMaker training container: the line, the flags, and how the hosts wait for each other."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.launch.job import Outcome
from smddp_tf.run.link.ends import End
from smddp_tf.run.rank import environment_file
from smddp_tf.run.sagemaker import hosts as sagemaker_hosts
from smddp_tf.run.sagemaker import line as sagemaker_line
from smddp_tf.run.sagemaker import training as sagemaker
from smddp_tf.run.sagemaker.hosts import DAEMON_WITHIN_SECONDS, REACHED_WITHIN_SECONDS, Hosts, follow, lead
from smddp_tf.run.sagemaker.training import (
    Training,
    flags_of,
    parameters_of_distribution,
    read_training,
    variables_of_ranks,
)
from tests.unit.run_dry import HYDRA, OPEN_MPI_4, OPEN_MPI_5, DryRun, values_of

TWO_HOSTS = {
    "SM_HOSTS": '["algo-2", "algo-1"]',
    "SM_CURRENT_HOST": "algo-1",
    "SM_NUM_GPUS": "8",
    "SM_NETWORK_INTERFACE_NAME": "eth7",
    "SM_HPS": json.dumps(
        {"learning-rate": 0.1, "b": 32, "amp": "", "sizes": {"y": 2, "x": "1"}, "sagemaker_region": "r"}
    ),
    "SM_FRAMEWORK_PARAMS": json.dumps(
        {
            "sagemaker_distributed_dataparallel_enabled": True,
            "sagemaker_distributed_dataparallel_custom_mpi_options": "-verbose --NCCL_DEBUG WARN -x A=1",
            "sagemaker_instance_type": "ml.p4d.24xlarge",
        }
    ),
    "SM_USER_ENTRY_POINT": "train.py",
}  # fmt: skip
LINE = """
/opt/bin/mpirun --host algo-1:8,algo-2:8 -np 16 --allow-run-as-root --tag-output --oversubscribe
-mca btl_tcp_if_include eth7 -mca oob_tcp_if_include eth7 -mca plm_rsh_no_tree_spawn 1 -mca pml ob1 -mca btl ^openib
-mca orte_abort_on_non_zero_status 1 -mca btl_vader_single_copy_mechanism none -mca plm_rsh_num_concurrent 2
-x NCCL_SOCKET_IFNAME=eth7 -x NCCL_DEBUG=WARN -x LD_LIBRARY_PATH -x PATH -x SMDATAPARALLEL_USE_HOMOGENEOUS=1
-x RDMAV_FORK_SAFE=1 -verbose -x A=1 -x NCCL_PROTO=simple -x FI_EFA_USE_DEVICE_RDMA=1
-x SMDATAPARALLEL_SERVER_ADDR=algo-1 -x SMDATAPARALLEL_SERVER_PORT=7592 -x SAGEMAKER_INSTANCE_TYPE=ml.p4d.24xlarge
smddprun PYTHON -m mpi4py train.py --amp -b 32 --learning-rate 0.1 --sizes x=1,y=2
"""


@pytest.fixture
def dry_run(monkeypatch, capsys) -> DryRun:
    monkeypatch.setattr(sagemaker_line.importlib.util, "find_spec", lambda name: name == "mpi4py" or None)
    run = DryRun(monkeypatch, capsys)
    run.mpi = OPEN_MPI_4
    return run


def test_two_hosts(dry_run: DryRun) -> None:
    expected = LINE.replace("PYTHON", sys.executable).split()
    assert dry_run(env=TWO_HOSTS) == expected
    assert dry_run("train.py", env=TWO_HOSTS) == expected
    assert dry_run("python", "train.py", env=TWO_HOSTS)[-9:] == ["python", *expected[-8:]]
    assert dry_run("train.py", "--own", "1", env=TWO_HOSTS)[-3:] == ["train.py", "--own", "1"]


def test_one_host(dry_run: DryRun) -> None:
    words = dry_run(env={**TWO_HOSTS, "SM_HOSTS": '["algo-1"]', "SM_NUM_GPUS": "0", "SM_FRAMEWORK_PARAMS": "{}"})
    assert values_of(words, "--host") == ["algo-1"]
    assert values_of(words, "-np") == ["1"]
    exports = values_of(words, "-x")
    assert "SMDATAPARALLEL_USE_SINGLENODE=1" in exports
    assert "NCCL_DEBUG=INFO" in exports
    assert not [name for name in exports if name.startswith(("SMDATAPARALLEL_SERVER", "NCCL_PROTO", "FI_EFA"))]


def test_flags_of_the_launcher_travel_too(dry_run: DryRun) -> None:
    words = dry_run("--autotune", "-x", "TOKEN=s3cret", env=TWO_HOSTS)
    at = words.index("/opt/bin/mpirun")
    assert {"HOROVOD_AUTOTUNE=1", "TOKEN=s3cret"} <= set(words[:at])
    assert {"HOROVOD_AUTOTUNE", "TOKEN"} <= set(values_of(words[at:], "-x"))
    assert not [word for word in words[at:] if "s3cret" in word]


def test_a_variable_that_the_user_sets_is_set_once(dry_run: DryRun) -> None:
    """Of two, Open MPI 5 keeps the first."""
    training = {**TWO_HOSTS, "SM_FRAMEWORK_PARAMS": TWO_HOSTS["SM_FRAMEWORK_PARAMS"].replace("A=1", "NCCL_DEBUG=X")}
    words = dry_run("-x", "NCCL_SOCKET_IFNAME=eth1", "-x", "NCCL_PROTO=LL", env=training)
    names = [export.partition("=")[0] for export in values_of(words, "-x")]
    assert len(names) == len(set(names))
    assert {"NCCL_DEBUG=X", "NCCL_SOCKET_IFNAME", "NCCL_PROTO"} <= set(values_of(words, "-x"))


OFI = ["pml cm", "mtl ofi"]


@pytest.mark.parametrize(
    ("words", "options", "layer", "efa"),
    [
        ([], "", ["pml ob1"], False),
        ([], "--mca pml cm --mca mtl ofi", OFI, True),
        ([], "--mca mtl ofi", OFI[1:], True),
        (["--fabric", "ofi"], "", [*OFI, "opal_common_ofi_provider_include efa"], True),
        (["--fabric", "ucx"], "", ["pml ucx", "pml_ucx_tls any", "pml_ucx_devices any"], False),
        (["--fabric", "tcp"], "", ["pml ob1"], False),
    ],
)
def test_the_provider_for_efa_goes_with_the_layer_that_uses_it(dry_run: DryRun, words, options, layer, efa) -> None:
    dry_run.mpi = OPEN_MPI_5
    framework = json.loads(TWO_HOSTS["SM_FRAMEWORK_PARAMS"])
    framework["sagemaker_distributed_dataparallel_custom_mpi_options"] = options
    line = dry_run(*words, "t.py", env={**TWO_HOSTS, "SM_FRAMEWORK_PARAMS": json.dumps(framework)})
    assert values_of(line, "--mca", 2) == ["btl_tcp_if_include eth7", *layer]
    assert ("FI_PROVIDER=efa" in values_of(line, "-x")) == efa


def test_open_mpi_5(dry_run: DryRun) -> None:
    dry_run.mpi = OPEN_MPI_5
    words = dry_run(env=TWO_HOSTS)
    assert values_of(words, "--mca", 2) == ["btl_tcp_if_include eth7", "pml ob1"]
    assert (values_of(words, "--map-by"), values_of(words, "--bind-to")) == (["slot"], ["none"])
    assert values_of(words, "--prtemca", 2) == [
        "prte_if_include eth7", "plm_ssh_no_tree_spawn 1", "plm_ssh_num_concurrent 2",
    ]  # fmt: skip
    training = Training(("a",), "a", 1, program="t.py")
    with pytest.raises(LaunchError, match="Open MPI"):
        sagemaker_line.training_line(training, [], {}, {}, HYDRA)
    with pytest.raises(LaunchError, match="nothing to run"):
        sagemaker_line.training_line(Training(("a",), "a", 1), [], {}, {}, OPEN_MPI_4)


@pytest.mark.parametrize("place", ["SM_FRAMEWORK_PARAMS", "SM_HPS", "SM_DISTRIBUTION"])
def test_options_of_the_distribution_mpi(dry_run: DryRun, place: str) -> None:
    options = "-x FOO='two words' --mca btl_tcp_if_include lo"
    own = {"sagemaker_mpi_custom_mpi_options": options, "sagemaker_mpi_num_of_processes_per_host": 3}
    of_sdk = {"mpi": {"enabled": True, "custom_mpi_options": options, "processes_per_host": 3}}
    given = json.dumps(of_sdk if place == "SM_DISTRIBUTION" else own)
    words = dry_run(env={**TWO_HOSTS, "SM_FRAMEWORK_PARAMS": "{}", "SM_HPS": "{}", place: given})
    assert "FOO=two words" in values_of(words, "-x")
    assert values_of(words, "-np") == ["6"]
    assert values_of(words, "--mca") == ["btl_tcp_if_include"]
    assert not [value for value in values_of(words, "-mca") if value == "btl_tcp_if_include"]


def test_a_quotation_mark_is_missing() -> None:
    options = json.dumps({"sagemaker_distributed_dataparallel_custom_mpi_options": "-x A='b"})
    with pytest.raises(LaunchError, match="custom_mpi_options: No closing quotation"):
        variables_of_ranks({**TWO_HOSTS, "SM_FRAMEWORK_PARAMS": options})


def test_the_reason_of_a_failure_is_left_where_sagemaker_looks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sagemaker_hosts, "FAILURE", tmp_path / "failure")
    training = Training(("algo-1",), "algo-1", 2)
    outcome = Outcome(1, 1, "algo-1", End(1), report="rank 1 on algo-1 ended. Its traceback:\nT\nValueError: mine")
    monkeypatch.setattr("smddp_tf.run.launch.launch.run_line", lambda *_: outcome)
    monkeypatch.setattr(sagemaker_line, "find_mpi", lambda: OPEN_MPI_5)
    assert sagemaker_hosts.run_training(training, ["train.py"], {}) == 1
    assert (tmp_path / "failure").read_text() == f"ValueError: mine\n{outcome.report}\n"

    def no_job(*_: object) -> None:
        raise LaunchError("There is no mpirun.")

    monkeypatch.setattr("smddp_tf.run.launch.launch.run_line", no_job)
    with pytest.raises(LaunchError):
        sagemaker_hosts.run_training(training, ["train.py"], {})
    assert (tmp_path / "failure").read_text() == "There is no mpirun.\n"


def test_other_entry_points(dry_run: DryRun) -> None:
    words = dry_run(env={**TWO_HOSTS, "SM_USER_ENTRY_POINT": "train.sh", "SM_HPS": '{"a b": "x y"}'})
    assert words[-4:] == ["smddprun", "/bin/sh", "-c", "./train.sh '--a b' 'x y'"]


def test_an_explicit_job_is_not_sagemakers(dry_run: DryRun) -> None:
    assert values_of(dry_run("-np", "2", "t", env=TWO_HOSTS), "-H") == ["localhost:2"]


def test_flags_are_sorted_and_decoded() -> None:
    given = {"z": '"text"', "epochs": "3", "flag": '""', "on": True, "list": [1, 2], "d": '{"b": 2, "a": 1}'}
    assert flags_of(given) == [
        "-d", "a=1,b=2", "--epochs", "3", "--flag", "--list", "[1, 2]", "--on", "True", "-z", "text",
    ]  # fmt: skip


def test_the_toolkits_own_flags_win() -> None:
    assert read_training({**TWO_HOSTS, "SM_USER_ARGS": '["--a", "", "1"]'}).arguments == ("--a", "1")


def test_distribution_of_the_estimator() -> None:
    distribution = {"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": "-verbose"}}}
    assert parameters_of_distribution(distribution) == {
        "sagemaker_distributed_dataparallel_enabled": True,
        "sagemaker_distributed_dataparallel_custom_mpi_options": "-verbose",
    }
    for place in ({"SM_DISTRIBUTION": json.dumps(distribution)},
                  {"SM_HPS": json.dumps({"distribution": json.dumps(distribution), "a": 1})}):  # fmt: skip
        training = read_training({"SM_HOSTS": '["a"]', "SM_CURRENT_HOST": "a", **place})
        assert training.custom_mpi_options == "-verbose"
        assert "--distribution" not in training.arguments
    with pytest.raises(LaunchError, match="dataparallel"):
        parameters_of_distribution({"smdistributed": {"modelparallel": {}}})


def test_files_of_the_container(tmp_path) -> None:
    (tmp_path / "hyperparameters.json").write_text(
        json.dumps(
            {
                "lr": "0.5",
                "sagemaker_program": '"go.py"',
                "sagemaker_mpi_num_of_processes_per_host": "4",
                "sagemaker_distribution_instance_groups": '["gpus"]',
            }
        )
    )
    groups = [{"instance_group_name": "gpus", "hosts": ["b", "c"]}, {"instance_group_name": "cpus", "hosts": ["a"]}]
    (tmp_path / "resourceconfig.json").write_text(json.dumps({"instance_groups": groups}))
    training = read_training({"SM_HOSTS": '["a","b","c"]', "SM_CURRENT_HOST": "c", "SM_NUM_GPUS": "8"}, tmp_path)
    assert training == Training(("b", "c"), "c", 4, program="go.py", arguments=("--lr", "0.5"))
    assert (training.leader, training.is_leader, training.ranks) == ("b", False, 8)
    for bad in ({"SM_HOSTS": "x"}, {"SM_HOSTS": "[]"}, {"SM_CURRENT_HOST": "z"}, {"SM_HPS": "["}, {"SM_HPS": "[]"}):
        with pytest.raises(LaunchError, match=r"SM_"):
            read_training({"SM_HOSTS": '["a"]', "SM_CURRENT_HOST": "a", **bad}, tmp_path)


class Pretended(Hosts):
    """A world where time passes only by waiting."""

    def __init__(self, reachable_from: float = 0, daemon: tuple[float, float] = (5, 20), done_at: float = 40):
        self.now, self.calls = 0.0, []
        self._reachable_from, self._daemon, self._done_at = reachable_from, daemon, done_at

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def start_sshd(self) -> None:
        self.calls.append("sshd")

    def ssh(self, host: str, command: str) -> bool:
        self.calls.append(f"{host}: {command}")
        return self.now >= self._reachable_from

    def daemon_runs(self) -> bool:
        return self._daemon[0] <= self.now < self._daemon[1]

    def publish_environment(self, environment) -> None:
        self.calls.append("environment")

    def exit_code_in(self, path: str) -> int | None:
        assert path == "/tmp/done.a"
        return 3 if self.now >= self._done_at else None


TRAINING = Training(("a", "b", "c"), "a", 2)


def test_the_leader_waits_runs_and_tells() -> None:
    world = Pretended(reachable_from=7)
    assert lead(TRAINING, lambda: world.calls.append("job") or 4, world) == 4
    assert world.now == 7  # asked every second
    assert world.calls[0] == "sshd"
    assert world.calls[-3:] == ["job", "b: echo 4 > /tmp/done.a", "c: echo 4 > /tmp/done.a"]


def test_the_leader_tells_also_when_the_job_cannot_start() -> None:
    world = Pretended()

    def job() -> int:
        raise LaunchError("no mpirun")

    with pytest.raises(LaunchError, match="no mpirun"):
        lead(TRAINING, job, world)
    assert world.calls[-1] == "c: echo 1 > /tmp/done.a"


def test_what_a_follower_publishes_is_nobody_elses(tmp_path, monkeypatch) -> None:
    """Programs find what they need to start; all else, credentials too, is in a file of this user's alone."""
    everybodys, own = tmp_path / "environment", tmp_path / "private" / "environment"
    monkeypatch.setattr(sagemaker_hosts, "_FOR_ALL", str(everybodys))
    monkeypatch.setattr(sagemaker_hosts, "path_for", lambda user: str(own))
    container = {
        "PATH": "/opt/bin", "LD_LIBRARY_PATH": "/opt/lib", "AWS_SECRET_ACCESS_KEY": "s3cret", "SM_MODEL_DIR": "/m",
        "HOSTNAME": "algo-2", "LINES": "one\ntwo",
    }  # fmt: skip
    old = os.umask(0)
    try:
        Hosts().publish_environment(container)
    finally:
        os.umask(old)
    assert everybodys.read_text() == "PATH=/opt/bin\nLD_LIBRARY_PATH=/opt/lib\n"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (everybodys, own, own.parent)]
    assert modes == [0o600, 0o600, 0o700]
    rank = {"PATH": "/bin", "PMIX_RANK": "3", environment_file.FILE: str(own)}
    assert environment_file.take_over(rank) == {
        **{name: value for name, value in container.items() if name != "HOSTNAME"}, "PATH": "/bin", "PMIX_RANK": "3",
    }  # fmt: skip
    # The leader's ranks have all of it.
    assert environment_file.take_over({environment_file.FILE: str(tmp_path / "none")}) == {}
    assert environment_file.take_over({"A": "1"}) == {"A": "1"}


def test_what_others_could_have_made_is_not_used(tmp_path) -> None:
    folder = tmp_path / "private"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(LaunchError, match="mode 700"):
        environment_file.hand_on({}, str(folder / "environment"))
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(LaunchError, match="mode 700"):
        environment_file.hand_on({}, str(tmp_path / "link" / "environment"))
    file = tmp_path / "environment"
    file.write_text("{}")
    file.chmod(0o644)
    with pytest.raises(LaunchError, match="other users"):
        environment_file.take_over({environment_file.FILE: str(file)})


def test_a_leader_that_reports_and_ends_between_two_looks() -> None:
    class Gone(Pretended):
        def ssh(self, host: str, command: str) -> bool:
            if self.now < self._daemon[1]:
                return True
            self._done_at = 0  # it reported
            return False  # and its container ended

    assert follow(Training(("a", "b"), "b", 1), Gone(done_at=1e9)) == 3


def test_a_follower_waits_for_daemon_and_end() -> None:
    world = Pretended()
    assert follow(TRAINING, world) == 3
    assert world.calls[:2] == ["environment", "sshd"]
    assert 40 <= world.now < 80


@pytest.mark.parametrize(
    ("world", "role", "words", "seconds"),
    [
        (Pretended(reachable_from=1e9), "leader", "b to answer to ssh", REACHED_WITHIN_SECONDS),
        (Pretended(reachable_from=1e9), "follower", "leader a to answer to ssh", REACHED_WITHIN_SECONDS),
        (Pretended(daemon=(1e9, 2e9), done_at=1e9), "follower", "start its daemon", DAEMON_WITHIN_SECONDS),
        (Pretended(done_at=1e9), "follower", "without reporting", 20),
    ],
)
def test_every_wait_has_an_end(world: Pretended, role: str, words: str, seconds: float) -> None:
    with pytest.raises(LaunchError, match=words):
        lead(TRAINING, lambda: 0, world) if role == "leader" else follow(TRAINING, world)
    assert seconds <= world.now < seconds + 700


def test_inside_training() -> None:
    assert sagemaker.inside_training(TWO_HOSTS)
    assert not sagemaker.inside_training({"SM_HOSTS": "[]"})


def test_a_container_without_the_toolkit_reads_the_files(tmp_path, monkeypatch) -> None:
    assert not sagemaker.inside_training({})
    monkeypatch.setattr(sagemaker, "CONFIG", tmp_path)
    resources = {"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth9"}
    (tmp_path / "resourceconfig.json").write_text(json.dumps(resources))
    (tmp_path / "hyperparameters.json").write_text(json.dumps({"epochs": "3"}))
    assert sagemaker.inside_training({})
    training = read_training({"SM_NUM_GPUS": "4"}, tmp_path)
    assert (training.hosts, training.current_host, training.interface) == (("algo-1", "algo-2"), "algo-2", "eth9")
    assert (training.ranks, training.arguments) == (8, ("--epochs", "3"))


def test_ranks_of_the_toolkits_own_line() -> None:
    assert sagemaker.variables_of_ranks({}) == {}
    assert sagemaker.variables_of_ranks(TWO_HOSTS) == {"MASTER_ADDR": "algo-1", "MASTER_PORT": "29500", "A": "1"}
    assert sagemaker.variables_of_ranks({**TWO_HOSTS, "MASTER_ADDR": "h", "MASTER_PORT": "7"}) == {"A": "1"}

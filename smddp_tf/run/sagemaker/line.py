"""The mpirun line of a SageMaker job, the one that the training toolkit builds for SMDDP."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from smddp_tf.exceptions import LaunchError
from smddp_tf.run.hosts.hosts import Host
from smddp_tf.run.launch.mpi import OPEN_MPI, Mpi, find_mpi
from smddp_tf.run.launch.mpirun_command import (
    MpirunCommand,
    new_variables,
    sets_parameter,
    words_for_parameter,
    words_for_variables,
)
from smddp_tf.run.launch.settings import Settings
from smddp_tf.run.rank.in_process import is_script
from smddp_tf.run.sagemaker.training import Training, exported

SERVER_PORT = 7592
_PROTO_SIMPLE = (
    "g4dn.8xlarge", "g4dn.12xlarge", "g5.48xlarge", "p3dn.24xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge",
    "trn1.32xlarge", "p6e-gb200.36xlarge",
)  # fmt: skip
_DEVICE_RDMA = ("p4d.24xlarge", "p4de.24xlarge", "trn1.32xlarge", "p6e-gb200.36xlarge")
# Parameters of Open MPI 4 that 5 does not have, or does not need: there every failure ends the job.
_NOT_IN_FIVE = ("btl", "orte_abort_on_non_zero_status", "btl_vader_single_copy_mechanism")


@dataclass(frozen=True)
class TrainingLine:
    """mpirun's line, the inner command, and the settings that the launcher needs besides."""

    line: MpirunCommand
    command: tuple[str, ...]
    settings: Settings

    @property
    def shown(self) -> str:
        return self.line.shown(["smddprun", *self.command])


def training_line(
    training: Training,
    command: Sequence[str],
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    mpi: Mpi | None = None,
) -> TrainingLine:
    """The line for a job.

    Args:
        training: the job.
        command: what the user wants to run; empty: the job's entry point. Without arguments of its own it gets the
            hyperparameters.
        variables: for the ranks, from the launcher's flags.
        environment: of the launcher.
        mpi: whose line; None: the one that is found.

    Raises:
        LaunchError: there is nothing to run, or only MPICH to run it with.
    """
    mpi = mpi or find_mpi()
    if mpi.kind != OPEN_MPI:
        raise LaunchError(f"SageMaker's jobs are started with Open MPI. Found: {mpi.mpirun}, which is {mpi.kind}'s.")
    several = len(training.hosts) > 1
    hosts = ",".join(f"{host}:{training.per_host}" for host in training.hosts) if several else training.leader
    line = [mpi.mpirun, "--host", hosts, "-np", str(training.ranks), "--allow-run-as-root", "--tag-output",
            "--oversubscribe"]  # fmt: skip
    if mpi.major >= 5:  # which otherwise puts all ranks on the first host, each on one core
        line += ["--map-by", "slot", "--bind-to", "none"]
    nccl_debug, custom = _custom_options(training.custom_words)
    for name, value in _parameters(training):
        if sets_parameter(custom, name) or (name == "pml" and sets_parameter(custom, "mtl")):
            continue  # Open MPI 5 keeps the first of two
        if mpi.major < 5:
            line += ["-mca", name, value]
        elif name not in _NOT_IN_FIVE:
            line += words_for_parameter(mpi, name, value)
    theirs = {*exported(custom), *variables}  # Open MPI 5 keeps the first of two
    line += _with_x(_exports(training, nccl_debug, several, efa="ofi" in custom), theirs)
    line += custom
    line += _with_x(_exports_of_instance(training, several), theirs)
    line += words_for_variables(variables, environment)
    settings = Settings(training.ranks, tuple(Host(host, training.per_host) for host in training.hosts))
    made = MpirunCommand(tuple(line), new_variables(variables, environment))
    return TrainingLine(made, tuple(_inner_command(training, command)), settings)


def _parameters(training: Training) -> list[tuple[str, str]]:
    return [
        ("btl_tcp_if_include", training.interface),
        ("oob_tcp_if_include", training.interface),
        ("plm_rsh_no_tree_spawn", "1"),
        ("pml", "ob1"),
        ("btl", "^openib"),
        ("orte_abort_on_non_zero_status", "1"),
        ("btl_vader_single_copy_mechanism", "none"),
        ("plm_rsh_num_concurrent", str(len(training.hosts))),
    ]


def _custom_options(words: Sequence[str]) -> tuple[str, list[str]]:
    """NCCL_DEBUG, and all other words unchanged."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--NCCL_DEBUG", default="INFO")
    known, others = parser.parse_known_args(words)
    return known.NCCL_DEBUG, others


def _exports(training: Training, nccl_debug: str, several: bool, efa: bool) -> list[str]:
    """`efa`: MPI uses libfabric (--mca mtl ofi)."""
    exports = [
        f"NCCL_SOCKET_IFNAME={training.interface}",
        f"NCCL_DEBUG={nccl_debug}",
        "LD_LIBRARY_PATH",
        "PATH",
        f"SMDATAPARALLEL_USE_{'HOMOGENEOUS' if several else 'SINGLENODE'}=1",
        *(["FI_PROVIDER=efa"] if efa else []),
        "RDMAV_FORK_SAFE=1",
    ]
    if preload := _gethostname_library():
        exports.append(f"LD_PRELOAD={preload}")
    return exports


def _exports_of_instance(training: Training, several: bool) -> list[str]:
    exports = []
    instance = training.instance_type.replace("ml.", "", 1)
    if instance in _PROTO_SIMPLE:
        exports.append("NCCL_PROTO=simple")
    if instance in _DEVICE_RDMA:
        exports.append("FI_EFA_USE_DEVICE_RDMA=1")
    if several:
        exports += [
            f"SMDATAPARALLEL_SERVER_ADDR={training.leader}",
            f"SMDATAPARALLEL_SERVER_PORT={SERVER_PORT}",
            f"SAGEMAKER_INSTANCE_TYPE={training.instance_type}",
        ]
    return exports


def _with_x(exports: Sequence[str], theirs: Set[str]) -> list[str]:
    """`theirs`: variables that the user sets, which are left out."""
    return [word for export in exports if export.partition("=")[0] not in theirs for word in ("-x", export)]


def _inner_command(training: Training, command: Sequence[str]) -> list[str]:
    command = list(command) or ([training.program] if training.program else [])
    if not command:
        raise LaunchError("There is nothing to run. Give a command, or set SM_USER_ENTRY_POINT or SAGEMAKER_PROGRAM.")
    named = command[1:2] if command[0].rpartition("/")[2].startswith("python") else command[:1]
    bare = len(command) == len(named) + (command[:1] != named)
    arguments = list(training.arguments) if bare else []
    if is_script(command):
        runner = ["-m", "mpi4py"] if importlib.util.find_spec("mpi4py") else []
        return [sys.executable, *runner, *command, *arguments]
    if len(command) == 1 and command[0] == training.program:
        return ["/bin/sh", "-c", shlex.join([f"./{command[0]}", *arguments])]
    return [*command, *arguments]


def _gethostname_library() -> str:
    """The toolkit's library that makes `gethostname` answer with the host's name in the cluster; "" without it."""
    found = importlib.util.find_spec("sagemaker_training")
    folders = found.submodule_search_locations if found else None
    libraries = [str(file) for folder in folders or () for file in Path(folder).glob("gethostname*.so")]
    return libraries[0] if libraries else ""

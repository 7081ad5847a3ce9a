"""Who has started this process as one of several, and where they meet: the variables of launchers without MPI."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from smddp_tf.exceptions import LaunchError

RANK, SIZE, COORDINATOR, PORT = "SMDDP_RANK", "SMDDP_SIZE", "SMDDP_COORDINATOR", "SMDDP_PORT"
# Of the arguments of `keras.distribution.initialize`, in their order. Of the addresses the first one counts.
KERAS = tuple(f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"))
LOCAL_RANK, LOCAL_SIZE = "SMDDP_RUN_LOCAL_RANK", "SMDDP_RUN_LOCAL_SIZE"  # smddprun --no-mpi sets them as well
# The number for life of a process whose rank changes, because the job goes on without lost ranks, and with new ones.
NUMBER = "SMDDP_RUN_NUMBER"
# Of all launchers below: what a job that is started from inside another must not inherit.
VARIABLES = (
    RANK, SIZE, COORDINATOR, "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG",
    "SLURM_STEP_NUM_TASKS", *KERAS,
)  # fmt: skip
_KERAS_PORT = 29600  # for job addresses without a port
_SLURM_PORTS = (20000, 20000)  # the first, and how many: a job's is chosen by its number
TRAINING_TASKS = ("chief", "master", "worker")  # of TF_CONFIG, in the order of ranks
_FIRST_SPECIAL_STEP = 0xFFFFFFF0  # step numbers from here on are Slurm's own: the batch script, the shell of salloc


class Start(NamedTuple):
    """This process in its job.

    Attributes:
        rank: its number, from 0.
        size: how many processes there are.
        host: of rank 0, where all meet: a name or an address.
        port: there.
        source: the variables that say so, for messages.
    """

    rank: int
    size: int
    host: str
    port: int
    source: str


def find_start(environment: Mapping[str, str]) -> Start | None:
    """The first of: SMDDP_RANK and its like; RANK and its like (torchrun); TF_CONFIG; Keras's variables; Slurm's.

    Args:
        environment: of this process.

    Returns:
        None where nothing says that this process is one of several.

    Raises:
        LaunchError: variables are missing, are no numbers, or two launchers' contradict each other.
    """
    found = [start for start in _all(environment) if start.size > 1]
    for other in found[1:]:
        if (other.rank, other.size) != (found[0].rank, found[0].size):
            raise LaunchError(
                f"The environment contradicts itself: {found[0].source} say rank {found[0].rank} of {found[0].size}, "
                f"{other.source} say rank {other.rank} of {other.size}. Unset those that do not belong to this job."
            )
    if found and PORT in environment:
        return found[0]._replace(port=_number(environment, PORT))
    return found[0] if found else None


def mpi_is_off(environment: Mapping[str, str]) -> bool:
    """Whether `SMDDP_MPI=off` says that a launcher of MPI counts for nothing; one of ours, without MPI, does count."""
    return environment.get("SMDDP_MPI") == "off" and RANK not in environment


def _all(environment: Mapping[str, str]) -> Iterator[Start]:
    if RANK in environment or SIZE in environment:
        host, port = _host_and_port(_text(environment, COORDINATOR, f"{RANK} and {SIZE}"), COORDINATOR)
        yield _start(environment, RANK, SIZE, host, port)
    if "WORLD_SIZE" in environment and _number(environment, "WORLD_SIZE") > 1:
        host = _text(environment, "MASTER_ADDR", "RANK and WORLD_SIZE")
        # The next port: on MASTER_PORT torchrun itself listens.
        yield _start(environment, "RANK", "WORLD_SIZE", host, _number(environment, "MASTER_PORT") + 1)
    if "TF_CONFIG" in environment and (start := _of_tf_config(environment["TF_CONFIG"])):
        yield start
    if environment.get(KERAS[0]):
        yield _of_keras(environment)
    if (step := slurm_step(environment)) is not None and "SLURM_STEP_NUM_TASKS" in environment:
        nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
        first, count = _SLURM_PORTS
        port = first + (_number(environment, "SLURM_JOB_ID") * 7 + step) % count
        yield _start(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", first_node(nodes), port)


def slurm_step(environment: Mapping[str, str]) -> int | None:
    """The number of the step whose task `srun` started this process as; None in the script of `sbatch`, for example."""
    step = environment.get("SLURM_STEP_ID", environment.get("SLURM_STEPID", ""))
    return int(step) if step.isdigit() and int(step) < _FIRST_SPECIAL_STEP else None


def first_node(text: str) -> str:
    """`n01` of Slurm's `n[01-03,7],gpu`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", text)
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0] if first else "")


def _of_keras(environment: Mapping[str, str]) -> Start:
    addresses, size, rank = KERAS
    first = environment[addresses].split(",")[0].strip()
    has_port = ":" in first.rpartition("]")[2]
    host, port = _host_and_port(first if has_port else f"{first}:{_KERAS_PORT}", addresses)
    return _start(environment, rank, size, host, port)


def _of_tf_config(text: str) -> Start | None:
    """Processes that do not train (an evaluator) are none of the job's."""
    try:
        config = json.loads(text)
        cluster: dict[str, Any] = config.get("cluster", {})
        kind, index = config.get("task", {}).get("type", ""), int(config.get("task", {}).get("index", 0))
        before = TRAINING_TASKS[: TRAINING_TASKS.index(kind)] if kind in TRAINING_TASKS else ()
        addresses = [str(address) for name in TRAINING_TASKS for address in cluster.get(name, ())]
    except (ValueError, TypeError, AttributeError) as error:
        raise LaunchError(f"TF_CONFIG cannot be read ({error}). Expected JSON with `cluster` and `task`.") from None
    if len(addresses) < 2 or kind not in TRAINING_TASKS:
        return None
    rank = sum(len(cluster.get(name, ())) for name in before) + index
    host, port = _host_and_port(addresses[0], "TF_CONFIG")
    return _checked(Start(rank, len(addresses), host, port, "the variables TF_CONFIG"))


def _start(environment: Mapping[str, str], rank: str, size: str, host: str, port: int) -> Start:
    return _checked(Start(_number(environment, rank), _number(environment, size), host, port, f"{rank} and {size}"))


def _checked(start: Start) -> Start:
    if 0 <= start.rank < start.size:
        return start
    raise LaunchError(f"{start.source} say rank {start.rank} of {start.size}. Expected: 0 <= rank < {start.size}.")


def _text(environment: Mapping[str, str], name: str, beside: str) -> str:
    if value := environment.get(name):
        return value
    raise LaunchError(
        f"{beside} are set, so this process is one of several, but {name} is not. Expected: where rank 0 is found "
        f"({COORDINATOR}=host:port, or MASTER_ADDR and MASTER_PORT). For one process alone, unset {beside}."
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if text.isdigit():
        return int(text)
    raise LaunchError(f"The variable {name} must be a number. Received: {text!r}.")


def _host_and_port(address: str, name: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and 0 < int(port) < 1 << 16:
        return host.strip("[]"), int(port)
    raise LaunchError(f"{name} must give an address as host:port. Received: {address!r}.")

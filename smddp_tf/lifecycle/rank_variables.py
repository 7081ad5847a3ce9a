"""The variables that give a process its rank in a job: those that are set for it, and those it must not inherit."""

from __future__ import annotations

import socket
from collections.abc import Container, Mapping, MutableMapping

from smddp_tf.lifecycle.placement import Placement

# Variables that a launcher sets for a rank, and that a new job must not inherit.
_OF_RANKS = ("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "PALS_", "MPI_LOCAL", "HYDI_", "SMDDP_RUN_")
_OF_RANKS_EXACT = (
    "SMDDP_RANK", "SMDDP_SIZE", "SMDDP_COORDINATOR",
    "OMPI_COMMAND", "OMPI_ARGV", "OMPI_APP_CTX_NUM_PROCS", "OMPI_FIRST_RANKS", "OMPI_FILE_LOCATION",
    "OMPI_NUM_APP_CTX", "OMPI_MCA_ess", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_local_daemon_uri",
    "OMPI_MCA_orte_ess_num_procs", "OMPI_MCA_orte_jobid", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_ess_base_vpid",
    "OMPI_MCA_orte_launch", "OMPI_MCA_orte_app_num", "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_orte_top_session_dir",
    "OMPI_MCA_orte_jobfam_session_dir", "OMPI_MCA_orte_num_nodes", "OMPI_MCA_orte_bound_at_launch",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint", "OMPI_MCA_initial_wdir",
)  # fmt: skip
# Variables of Horovod's launcher, for programs that read them under any other launcher.
_OF_NUMBERS = tuple(
    f"HOROVOD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
)
OF_HOROVOD = ("HOROVOD_HOSTNAME", *_OF_NUMBERS)
_COMMON = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
RENDEZVOUS = ("MASTER_ADDR", "MASTER_PORT")  # the host of rank 0, and a port there that no other job was given

_set: dict[str, str] = {}  # by this process, which may begin another session as another rank


def variables_of(placement: Placement) -> dict[str, str]:
    """Returns the variables that Horovod's, SMDDP's and other launchers set for a rank, as far as they are known."""
    values = variables_of_numbers(placement.rank, placement.size, placement.local_rank, placement.local_size)
    numbers = (placement.rank, placement.size, placement.local_rank, placement.local_rank)
    common = zip((*_COMMON, "SMDATAPARALLEL_LOCAL_RANK"), numbers)
    return values | {name: str(number) for name, number in common if number is not None}


def without_rank_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the variables of a rank, for a job that is started from inside another."""
    of_outer_job = (*_COMMON, *RENDEZVOUS) if "HOROVOD_RANK" in environment else ()
    left_out = {*_OF_RANKS_EXACT, *OF_HOROVOD, *of_outer_job}
    kept = [name for name in environment if name not in left_out and not name.startswith(_OF_RANKS)]
    return {name: environment[name] for name in kept}


def remove_rank_variables(environment: MutableMapping[str, str], others: Container[str]) -> None:
    """Removes the variables of a rank, and `others`."""
    kept = without_rank_variables(environment)
    for name in [name for name in environment if name not in kept or name in others]:
        del environment[name]


def variables_of_numbers(*numbers: int | None) -> dict[str, str]:
    """Horovod's variables of a rank's numbers, without those that are None.

    Args:
        numbers: rank, size, local rank, local size, cross rank, cross size; the last ones may be left out.
    """
    return {name: str(number) for name, number in zip(_OF_NUMBERS, numbers) if number is not None}


def set_those_missing(environment: MutableMapping[str, str], numbers: tuple[int, int, int, int, int, int]) -> None:
    """Sets Horovod's variables, except those that a launcher has set.

    Args:
        environment: of this process.
        numbers: all six, in the order of `variables_of_numbers`.
    """
    values = {"HOROVOD_HOSTNAME": socket.gethostname(), **variables_of_numbers(*numbers)}
    for name, value in values.items():
        if environment.get(name) in (None, _set.get(name)):
            environment[name] = _set[name] = value

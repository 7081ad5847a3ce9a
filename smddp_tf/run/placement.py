"""This process's rank, from the variables of its launcher: Open MPI, MPICH and Intel MPI (hydra), PALS, or Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from smddp_tf.run import slurm
from smddp_tf.run.errors import LaunchError

__all__ = ["Placement", "find_placement", "variables_of", "why_alone", "without_rank_variables"]

# PMIx gives the rank only; Slurm's own variables complete it. In the order in which they are believed.
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID")
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE")
_LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID")
_LOCAL_SIZE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE")

# What a launcher puts into the environment of a rank, and what a new job must not inherit.
_OF_RANKS = ("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "PALS_", "MPI_LOCAL", "HYDI_", "SMDDP_RUN_")
_OF_RANKS_EXACT = (
    "OMPI_COMMAND", "OMPI_ARGV", "OMPI_APP_CTX_NUM_PROCS", "OMPI_FIRST_RANKS", "OMPI_FILE_LOCATION",
    "OMPI_NUM_APP_CTX", "OMPI_MCA_ess", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_local_daemon_uri",
    "OMPI_MCA_orte_ess_num_procs", "OMPI_MCA_orte_jobid", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_ess_base_vpid",
    "OMPI_MCA_orte_launch", "OMPI_MCA_orte_app_num", "OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_orte_top_session_dir",
    "OMPI_MCA_orte_jobfam_session_dir", "OMPI_MCA_orte_num_nodes", "OMPI_MCA_orte_bound_at_launch",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint", "OMPI_MCA_initial_wdir",
)  # fmt: skip


@dataclass(frozen=True)
class Placement:
    """This rank's numbers; None where the launcher does not set them."""

    rank: int
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None


def find_placement(environment: Mapping[str, str]) -> Placement | None:
    """This process's placement by a launcher; None without a launcher.

    Raises:
        LaunchError: `srun` started several tasks without PMI or PMIx, so that each would be a job of its own.
    """
    rank = _first(environment, _RANK)
    in_step = slurm.in_rank_step(environment)
    if rank is not None:
        size = _first(environment, (*_SIZE, "SLURM_STEP_NUM_TASKS") if in_step else _SIZE)
        local_rank = _first(environment, (*_LOCAL_RANK, "SLURM_LOCALID") if in_step else _LOCAL_RANK)
        return Placement(rank, size, local_rank, _first(environment, _LOCAL_SIZE))
    tasks = _first(environment, ("SLURM_STEP_NUM_TASKS",)) if in_step else None
    if tasks is not None and tasks > 1:
        raise LaunchError(
            f"srun started {tasks} tasks without PMI or PMIx, so they cannot find each other: each would be a "
            "job of one rank. Use `srun --mpi=pmix` (or --mpi=pmi2 where smddp_tf was built for MPICH); `srun "
            "--mpi=list` shows what this Slurm has."
        )
    return None


def why_alone(environment: Mapping[str, str]) -> str:
    """For a rank that is alone according to MPI: why that is wrong; "" when it is right."""
    if environment.get("SMDDP_MPI") == "off":
        return ""
    try:
        placement = find_placement(environment)
    except LaunchError as error:
        return str(error)
    if placement is None or placement.size in (None, 1):
        return ""
    return (
        f"The launcher has started {placement.size} processes, but MPI sees only this one, so each of them trains "
        "alone. The launcher must be that of the MPI that smddp_tf is built with; `smddprun` finds it, and "
        "`smddprun --check-build` names that MPI. Under Slurm: srun --mpi=pmix."
    )


def variables_of(placement: Placement) -> dict[str, str]:
    """What Horovod's and SMDDP's launchers set in a rank's environment, as far as it is known."""
    values = {
        "HOROVOD_RANK": placement.rank,
        "HOROVOD_SIZE": placement.size,
        "HOROVOD_LOCAL_RANK": placement.local_rank,
        "HOROVOD_LOCAL_SIZE": placement.local_size,
        "SMDATAPARALLEL_LOCAL_RANK": placement.local_rank,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def without_rank_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes a process a rank: for a job that is started from inside another."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OF_RANKS_EXACT and not name.startswith(_OF_RANKS)
    }


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)

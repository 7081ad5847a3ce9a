"""This process's rank, from the variables of its launcher: Open MPI, MPICH and Intel MPI (hydra), PALS, ours, Slurm."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from smddp_tf.rendezvous import starters
from smddp_tf.rendezvous.starters import TRAINING_TASKS, slurm_step

# PMIx gives the rank only; Slurm's own variables complete it. In the order in which they are believed.
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID", starters.RANK)
_SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PALS_SIZE", starters.SIZE)
_LOCAL_RANK = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID", starters.LOCAL_RANK,
)  # fmt: skip
_LOCAL_SIZE = (
    "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE", starters.LOCAL_SIZE,
)  # fmt: skip


class Placement(NamedTuple):
    """This rank's numbers; None where the launcher does not set them."""

    rank: int
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None


def find_placement(environment: Mapping[str, str]) -> Placement | None:
    """This process's placement by a launcher; None without a launcher."""
    rank = _first(environment, _RANK)
    in_step = slurm_step(environment) is not None
    if rank is None and in_step and (_first(environment, ("SLURM_STEP_NUM_TASKS",)) or 1) > 1:
        rank = _first(environment, ("SLURM_PROCID",))
    if rank is None:
        return None
    size = _first(environment, (*_SIZE, "SLURM_STEP_NUM_TASKS") if in_step else _SIZE)
    local_rank = _first(environment, (*_LOCAL_RANK, "SLURM_LOCALID") if in_step else _LOCAL_RANK)
    return Placement(rank, size, local_rank, _first(environment, _LOCAL_SIZE))


def why_apart(environment: Mapping[str, str], size: int) -> str:
    """For a job of `size` ranks: which more processes belong to it; "" where none do.

    `SMDDP_MPI=off` says that every process is to be alone.
    """
    if environment.get("SMDDP_MPI") == "off":
        return ""
    placement = find_placement(environment)
    started = max(placement.size or 0, placement.rank + 1) if placement else 1
    if size == 1 and started > 1:
        return (
            f"The launcher has started {started} processes or more, but MPI sees only this one, so each of them would "
            "train alone. The launcher must be that of the MPI that smddp_tf is built with; `smddprun` finds it, and "
            "`smddprun --check-build` names that MPI. Under Slurm: srun --mpi=pmix. For processes that do train alone: "
            "SMDDP_MPI=off."
        )
    for found, wanted in _of_other_launchers(environment):
        if wanted > size:
            return (
                f"{found} says that {wanted} processes train together, but this job has {size}, so they train apart. "
                "What MPI's launcher says comes first: start all of them by one launcher (docs/launching.md)."
                f" If it is left over from something else, unset {found.split('=')[0]}; for one process that does "
                "train alone, SMDDP_MPI=off."
            )
    return ""


def _of_other_launchers(environment: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Variables of other launchers (torchrun, Ray, horovodrun --gloo), and how many processes they speak of."""
    for name in ("WORLD_SIZE", "HOROVOD_SIZE"):
        if (size := _first(environment, (name,))) is not None:
            yield f"{name}={size}", size
    with contextlib.suppress(ValueError, TypeError, AttributeError):  # TensorFlow says what is wrong with it
        cluster = json.loads(environment.get("TF_CONFIG", "{}")).get("cluster", {})
        yield f"TF_CONFIG={environment.get('TF_CONFIG')}", sum(len(cluster.get(kind, ())) for kind in TRAINING_TASKS)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)

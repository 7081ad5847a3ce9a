"""A process that a rank has started is none of the job's ranks: its `init` makes it a job of one rank.

It inherits the launcher's variables. MPI, initialized with them, would take it for its parent: both crash, or hang.
"""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import MutableMapping

from smddp_tf._warn import warn
from smddp_tf.lifecycle.rank_variables import remove_rank_variables
from smddp_tf.link.channel import ADDRESS
from smddp_tf.rendezvous import starters

# Set by a rank for its children: its rank numbers and its process. `smddprun` and jobs of their own do not inherit it.
PROCESS = "SMDDP_RUN_PROCESS"
# The parent's place in its job, and files of the parent's, which a child must not write.
_NOT_FOR_CHILDREN = (*starters.VARIABLES, "SMDDP_TIMELINE", "HOROVOD_TIMELINE", "SMDDP_MONITOR")
_RANK = ("PMIX_RANK", "PMI_RANK", starters.RANK, "RANK", "SLURM_PROCID")  # for the message

_is_child: bool | None = None  # as found by the first call in this process, or in the one that it was forked from


def leave_parents_job(environment: MutableMapping[str, str]) -> bool:
    """True in a process that a rank has started; the launcher's variables are removed from its environment.

    Args:
        environment: of this process. That of a rank gets a variable for its children.
    """
    global _is_child
    if _is_child is None:
        rank = next((environment[name] for name in _RANK if name in environment), "")
        _is_child = _was_started_by_rank(environment)
        if _is_child:
            remove_rank_variables(environment, _NOT_FOR_CHILDREN)
            if not _is_worker():  # a worker may only have imported the program again
                warn(
                    f"This process is a child of rank {rank} and none of the job's ranks: hvd.init() makes it a job of "
                    "one rank.",
                    RuntimeWarning,
                )
    return _is_child


def _was_started_by_rank(environment: MutableMapping[str, str]) -> bool:
    if "PMIX_NAMESPACE" in environment:
        prefix = f"{environment['PMIX_NAMESPACE']}:{environment.get('PMIX_RANK')}:"
    elif "PMI_FD" in environment:  # MPICH's launcher: only the rank inherits the connection to it
        return "PMI_PORT" not in environment and _is_no_socket(environment["PMI_FD"])
    elif starters.NUMBER in environment:
        prefix = f"{environment.get(ADDRESS)}:{environment[starters.NUMBER]}:"
    elif start := starters.find_start(environment):
        prefix = f"{start.host}:{start.port}:{start.rank}:"
    else:
        return False
    if not environment.get(PROCESS, "").startswith(prefix):  # the first, or a launcher that a rank has started
        environment[PROCESS] = f"{prefix}{os.getpid()}"
    return environment[PROCESS] != f"{prefix}{os.getpid()}"


def _is_worker() -> bool:
    """In a process of multiprocessing, also while it imports the program."""
    inherits = getattr(multiprocessing.current_process(), "_inheriting", False)
    return inherits or multiprocessing.parent_process() is not None


def _is_no_socket(file: str) -> bool:
    try:
        return file.isdigit() and not stat.S_ISSOCK(os.fstat(int(file)).st_mode)
    except OSError:
        return True

"""Start, stop, rank and size: everything that needs neither TensorFlow nor a collective.

Importing this module loads no native code; the first call does.
"""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smddp_tf import process_sets as sets
from smddp_tf._native import loader, shared_tensors
from smddp_tf.exceptions import LaunchError, reason_of
from smddp_tf.lifecycle import aliased, children, first_use, notes, placement, rank_variables, uncaught, versions
from smddp_tf.monitor import recording, timeline
from smddp_tf.rendezvous import meeting, rounds, starters

if TYPE_CHECKING:
    from mpi4py import MPI

    from smddp_tf.process_sets import ProcessSet

__all__ = [
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "init",
    "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rank", "rocm_built", "shutdown", "size", "start_timeline",
    "stop_timeline",
]  # fmt: skip

# Whether `init(process_sets="dynamic")` was called in this process: as in Horovod it holds for later calls too.
_dynamic = False
# For programs that use `horovod.tensorflow.mpi_ops._basics`.
_get_process_set_ids_and_ranks = sets.get_process_set_ids_and_ranks
# The arguments of `init`, for `restart`; None before it has succeeded. MPI keeps only a handle of a communicator, which
# must not be collected while the session runs.
_began_with: tuple[Any, Any] | None = None
_TRIES = 8  # to begin a session, where ranks are lost one after the other meanwhile


def init(
    comm: MPI.Comm | Sequence[int] | Sequence[MPI.Comm] | None = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
) -> None:
    """Joins the other ranks. Call it once, before anything else of this library.

    Waits until all ranks have called it. A later call does nothing. TensorFlow is not initialized, so threads, memory
    growth and visible devices can still be configured afterwards. Where it has been imported before, graphs that hold
    operations of this library can be read from files from now on (`tf.compat.v1.train.import_meta_graph`).

    Example:
    >>> import smddp_tf as hvd
    >>> hvd.init()
    >>> print(f"rank {hvd.rank()} of {hvd.size()}")

    Args:
        comm: who takes part. `None`: every process that `mpirun`, `torchrun`, Slurm or another launcher started
            (docs/launching.md), or this one alone, without a launcher. A list of ranks of MPI's world: those. An
            mpi4py communicator: its members. A list of communicators: the first is that, every other one becomes a
            process set. Defaults to `None`.
        process_sets: list of `hvd.ProcessSet` to begin with, the same on all ranks; or `"dynamic"`, which allows
            `hvd.add_process_set` and `hvd.remove_process_set` (as does `HOROVOD_DYNAMIC_PROCESS_SETS=1`).

    Raises:
        ValueError: `comm` or `process_sets` is neither of these, or names a rank that does not exist.
        LaunchError: the launcher's variables contradict each other, some processes did not come within
            `SMDDP_START_TIMEOUT`, or processes that were started together would train apart.
        EngineError: the ranks did not find each other, for example within `SMDDP_START_TIMEOUT`.
    """
    global _began_with
    if children.leave_parents_job(os.environ):
        comm = process_sets = None
    began_with = (comm, process_sets)
    comm, from_comms = _world_and_sets(comm)
    ranks, address = _participants(comm)
    first_sets = from_comms + _first_sets(process_sets)
    if is_initialized():
        return
    first_use.begin()
    notes.tell(notes.BEGINS, os.environ)
    _begin_session(ranks, address)
    notes.tell(notes.HAS_BEGUN, os.environ)
    if aliased.is_aliased("horovod") and mpi_enabled():
        numbers = rank(), size(), local_rank(), local_size(), cross_rank(), cross_size()
        rank_variables.set_those_missing(os.environ, numbers)
    if "tensorflow" in sys.modules:
        with contextlib.suppress(ImportError):  # raised again where an operation is used
            loader.defined_ops()
    uncaught.watch()
    atexit.unregister(_end_session)
    atexit.register(_end_session, at_exit=True)
    try:
        _check_not_apart(comm)
        sets.add_sets(first_sets, at_start=True)
        if monitor_folder := loader.core().monitor_folder():
            recording.start(monitor_folder)
        _began_with = began_with
    except Exception:
        shutdown()
        raise


def _begin_session(ranks: list[int], address: int) -> None:
    """In a job whose ranks come and go another one may be lost meanwhile: then the session begins without it."""
    core, more_tries = loader.core(), _TRIES if rounds.in_rounds(os.environ) else 1
    while not core.is_initialized():
        more_tries -= 1
        world = _world(bool(address), ranks)
        try:
            core.init(ranks, address, _dynamic, versions.facts(), shared_tensors.memory(), world)
        except Exception as error:
            if not more_tries or reason_of(error) not in ("peer_lost", "transport_failed"):
                raise
            rounds.note_failure(str(error))


def shutdown() -> None:
    """Ends this rank's session. Called automatically when Python exits; `init` may follow.

    Unfinished operations end with an error on every rank.
    """
    _end_session(at_exit=False)
    sets.forget_all()


def _end_session(at_exit: bool) -> None:
    """At the end of the program it waits, as MPI does, until the other ranks have left or one is lost."""
    try:
        recording.stop()
        if is_initialized():
            rounds.note_failure((loader.core().session_failure() or ("", ""))[1])
            stop_timeline()
    finally:
        loader.core().shutdown(at_exit=at_exit)


def restart() -> None:
    """`shutdown`, then `init` with the arguments of the last time: the same ranks in a new session."""
    recorded = recording.current()
    shutdown()
    init(*(_began_with or ()))
    if recorded is not None:
        recording.start(recorded.folder)


def is_initialized() -> bool:
    """True between `init` and `shutdown`."""
    return bool(loader.core().is_initialized())


def rank() -> int:
    """My number among all processes, from 0. Raises ValueError before `init`, as do the next seven functions."""
    return int(loader.core().rank())


def size() -> int:
    """Returns the number of processes."""
    return int(loader.core().size())


def local_rank() -> int:
    """My number among the processes of my node, from 0. Use it to pick a GPU."""
    return int(loader.core().local_rank())


def local_size() -> int:
    """Returns the number of processes on my node."""
    return int(loader.core().local_size())


def cross_rank() -> int:
    """The number of my node among the nodes that have a process with my local rank."""
    return int(loader.core().cross_rank())


def cross_size() -> int:
    """Returns the number of nodes that have a process with my local rank."""
    return int(loader.core().cross_size())


def is_homogeneous() -> bool:
    """True when every node runs the same number of processes."""
    return bool(loader.core().is_homogeneous())


def start_timeline(file_path: str | os.PathLike[str], mark_cycles: bool = False) -> None:
    """Begins to write what every rank does into one file, for chrome://tracing or https://ui.perfetto.dev.

    The file is rank 0's, and rank 0's call counts: on other ranks it may be made (their `file_path` is not used) or
    left out. It is valid JSON at any time; the other ranks' events are in it after `stop_timeline` or `shutdown`. What
    a file shows, several hosts, and what is left of a job that crashes: docs/timeline.md. `HOROVOD_TIMELINE=DYNAMIC` is
    not needed.

    Example:
    >>> hvd.start_timeline("/tmp/steps.json")
    >>> total = hvd.allreduce([1.0, 2.0], name="metrics")
    >>> hvd.stop_timeline()

    Args:
        file_path: where to write: a regular file, or a path that does not exist yet. A symbolic link is refused.
        mark_cycles: bool, marks where the engine begins to move data after it was idle. Defaults to `False`.

    Raises:
        ValueError: before `init`, when a timeline is being written already, or when the file cannot be written.
    """
    loader.core().start_timeline(os.path.abspath(os.fspath(file_path)), bool(mark_cycles))


def stop_timeline() -> None:
    """Ends the timeline; does nothing where none is being written.

    On rank 0 it waits until the other ranks have closed their parts, which they do without a call of their own, and
    merges them into the file. It warns of parts on hosts whose files rank 0 cannot access, with the command that
    merges them once they have been copied.

    Raises:
        ValueError: before `init`.
    """
    path, hosts = loader.core().stop_timeline()
    if path:
        timeline.finish(path, hosts)


def mpi_threads_supported() -> bool:
    """True when MPI lets several threads call it. Raises ValueError where MPI is not in use."""
    core = loader.core()
    if not core.mpi_initialized():
        raise ValueError(
            "MPI is not in use, so there is no answer: call `hvd.init()` first, in a process started by mpirun."
        )
    return bool(core.mpi_threads_supported())


def mpi_enabled() -> bool:
    """True once this process uses MPI: after `init` under a launcher."""
    return bool(loader.core().mpi_initialized())


def mpi_built() -> bool:
    """True: MPI is always compiled in."""
    return True


def nccl_built() -> int:
    """The version number of the NCCL between the GPUs of a node (22703 is 2.27.3), or 0 where there is none.

    NCCL is not compiled in but loaded: the one of the wheel `nvidia-nccl-cu12`, which TensorFlow's GPU wheel uses too.
    """
    return int(loader.core().build_info().get("nccl_version", 0))


def cuda_built() -> bool:
    """True when CUDA is compiled in and its part of this library loads. Whether there is a GPU is another question."""
    return bool(loader.core().build_info().get("cuda", False))


def gloo_enabled() -> bool:
    """False: this library has no Gloo."""
    return False


def gloo_built() -> bool:
    """False: this library has no Gloo."""
    return False


def ddl_built() -> bool:
    """False: this library has no IBM DDL."""
    return False


def ccl_built() -> bool:
    """False: this library has no Intel oneCCL."""
    return False


def rocm_built() -> bool:
    """False: this library has no ROCm."""
    return False


def _world(has_communicator: bool, ranks: list[int]) -> meeting.World:
    """Where the other ranks are; without addresses they are MPI's, which is loaded then, or there are none."""
    core, alone = loader.core(), (0, list[str](), b"", -1)
    if rounds.in_rounds(os.environ):
        if ranks or has_communicator:
            raise ValueError(f"`comm` must be None in a job whose ranks come and go. Received: comm={ranks}.")
        world, place = rounds.join(os.environ)
        os.environ.update(rank_variables.variables_of(placement.Placement(*place)))
        return world
    if core.needs_mpi(has_communicator, is_initialized=False):
        loader.load_mpi()
        return alone
    if start := None if starters.mpi_is_off(os.environ) else starters.find_start(os.environ):
        if ranks and sorted(ranks) != list(range(start.size)):
            raise ValueError(f"`comm` can name some ranks only in jobs of MPI. Expected: None. Received: comm={ranks}.")
        return meeting.meet(start, os.environ, core.start_timeout())
    if core.needs_mpi(has_communicator, loader.mpi_is_initialized()):
        loader.load_mpi()
    return alone


def _world_and_sets(comm: object) -> tuple[Any, list[ProcessSet]]:
    """Splits a list of communicators: the first one is that of all ranks, the others are process sets."""
    if not isinstance(comm, Sequence) or not comm or not sets.is_communicator(comm[0]):
        return comm, []
    return comm[0], [sets.ProcessSet(other) for other in comm[1:]]


def _first_sets(process_sets: object) -> list[ProcessSet]:
    global _dynamic
    if isinstance(process_sets, str) and process_sets.lower() == "dynamic":
        _dynamic = True
        return []
    if process_sets is None:
        return []
    if isinstance(process_sets, Sequence) and all(isinstance(one, sets.ProcessSet) for one in process_sets):
        return list(process_sets)
    raise ValueError(
        '`process_sets` must be a list of `hvd.ProcessSet`, or "dynamic". '
        f"Received: process_sets={process_sets!r} (of type {type(process_sets).__name__})."
    )


def _check_not_apart(comm: object) -> None:
    """Raises LaunchError where MPI does not see all processes that belong to the job.

    Not where a rank may have been lost: in later sessions of a process, and in jobs whose ranks come and go.
    """
    if sets.is_communicator(comm):
        world = sys.modules["mpi4py.MPI"].COMM_WORLD.Get_size()
    elif comm is None or not mpi_enabled():
        world = size()
    else:
        return  # some ranks of a world
    if _began_with is None and not rounds.in_rounds(os.environ) and (reason := placement.why_apart(os.environ, world)):
        raise LaunchError(reason)


def _participants(comm: object) -> tuple[list[int], int]:
    """`comm` for the engine: world ranks (empty: all), and the address of an MPI_Comm (0: none)."""
    if comm is None:
        return [], 0
    if sets.is_communicator(comm):
        return [], _communicator_address(comm)
    if isinstance(comm, Sequence) and not isinstance(comm, (str, bytes)):
        return _ranks(comm), 0
    raise ValueError(
        "`comm` must be None, a list of ranks, or an mpi4py communicator. "
        f"Received: comm={comm!r} (of type {type(comm).__name__})."
    )


def _communicator_address(comm: Any) -> int:
    mpi = sys.modules["mpi4py.MPI"]
    if comm == mpi.COMM_NULL:
        raise ValueError(
            "`comm` must be a communicator that this process belongs to. Received: MPI.COMM_NULL. "
            "Do not call `hvd.init` on the processes that are left out."
        )
    return int(mpi._addressof(comm))


def _ranks(comm: Sequence[Any]) -> list[int]:
    try:
        ranks = [operator.index(entry) for entry in comm]
    except TypeError:
        raise ValueError(f"`comm` must be a list of ranks, that is, of integers. Received: comm={comm!r}.") from None
    if not ranks or min(ranks) < 0 or len(set(ranks)) != len(ranks):
        raise ValueError(
            f"`comm` must name at least one rank, each once, counted from 0. Received: comm={comm!r}. "
            "Leave it out to take all."
        )
    return ranks

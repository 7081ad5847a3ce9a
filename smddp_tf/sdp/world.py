"""Start, stop and the communicator of `smdistributed.dataparallel.tensorflow`. Needs no TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smddp_tf import basics
from smddp_tf.sdp.exceptions import SMDDPAlreadyInitializedError, SMDDPError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["get_worker_comm", "init", "shutdown"]

_communicator: MPI.Comm | None = None


def init() -> None:
    """Joins the other ranks. Call it once, at the start of the script.

    Raises:
        SMDDPAlreadyInitializedError: It was called before. It is a RuntimeError and a ValueError.
    """
    if basics.is_initialized():
        raise SMDDPAlreadyInitializedError(
            "init called more than once. smdistributed.dataparallel is already initialized."
        )
    basics.init()


def shutdown() -> None:
    """Leaves the other ranks. Runs by itself when Python exits; `init` may follow."""
    global _communicator
    if _communicator is not None:
        _communicator.Free()
        _communicator = None
    basics.shutdown()


def get_worker_comm() -> MPI.Comm:
    """An mpi4py communicator of all ranks, in their order, for `gather`, `Barrier` and the like.

    Nothing else uses it, so its messages match no others. The first call is collective.

    Raises:
        ImportError: mpi4py is not installed.
        SMDDPError: `init` was given a part of the processes, of which there is no communicator.
    """
    global _communicator
    if _communicator is None:
        size = basics.size()
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise ImportError("sdp.get_worker_comm() needs mpi4py: pip install mpi4py.") from error
        if MPI.COMM_WORLD.Get_size() != size:
            raise SMDDPError(
                f"sdp.get_worker_comm() is a communicator of all processes, {MPI.COMM_WORLD.Get_size()}, but the "
                f"session has {size}. Make one with MPI.COMM_WORLD.Split."
            )
        _communicator = MPI.COMM_WORLD.Dup()
    return _communicator

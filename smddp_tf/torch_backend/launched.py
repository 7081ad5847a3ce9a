"""Ranks that a launcher has started which the library knows: how many, and PyTorch's variables for them."""

from __future__ import annotations

import os
import socket

from smddp_tf import basics
from smddp_tf.collectives.objects import broadcast_object
from smddp_tf.lifecycle import placement, rank_variables
from smddp_tf.link.server import listen
from smddp_tf.rendezvous import starters


def size() -> int | None:
    """How many ranks the launcher has started; None without one, and where `SMDDP_MPI=off` says that MPI's is none."""
    placed = None if starters.mpi_is_off(os.environ) else placement.find_placement(os.environ)
    return placed.size if placed is not None else None


def free_port() -> int:
    """A port of this host at which nobody listens."""
    with listen("") as free:
        return int(free.getsockname()[1])


def set_variables() -> None:
    """Sets those that `init_process_group` reads, under `mpirun` or `srun`, and begins the session; else does nothing.

    All ranks call it together: rank 0 chooses the port where PyTorch's processes meet.
    """
    if "MASTER_ADDR" in os.environ or size() is None:
        return
    basics.init()
    numbers = basics.rank(), basics.size(), basics.local_rank(), basics.local_size()
    os.environ.update(rank_variables.variables_of(placement.Placement(*numbers)))
    address = broadcast_object((socket.gethostname(), str(free_port())), name="torch.address")
    os.environ.update(zip(rank_variables.RENDEZVOUS, address))

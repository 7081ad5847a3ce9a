"""PyTorch's variables, RANK and so on, in a process whose launcher does not set them."""

from __future__ import annotations

import os
import socket

from smddp_tf import basics
from smddp_tf.collectives.objects import broadcast_object
from smddp_tf.lifecycle import placement, rank_variables


def set_variables() -> None:
    """Sets those that `init_process_group` reads, under `mpirun` or `srun`, and begins the session; else does nothing.

    All ranks call it together: rank 0 chooses the port where PyTorch's processes meet.
    """
    placed = placement.find_placement(os.environ)
    if "MASTER_ADDR" in os.environ or placed is None or placed.size is None:
        return
    basics.init()
    numbers = basics.rank(), basics.size(), basics.local_rank(), basics.local_size()
    os.environ.update(rank_variables.variables_of(placement.Placement(*numbers)))
    with socket.create_server(("", 0)) as server:
        address = broadcast_object((socket.gethostname(), str(server.getsockname()[1])), name="smddp_tf.torch")
    os.environ.update(zip(rank_variables.RENDEZVOUS, address))

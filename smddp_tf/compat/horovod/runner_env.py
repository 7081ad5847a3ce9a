"""`horovod.runner.common.util.env`: a process's rank by its launcher's variables. Needs no TensorFlow."""

from __future__ import annotations

import os

from smddp_tf.lifecycle.placement import find_placement

__all__ = ["get_env_rank_and_size"]


def get_env_rank_and_size() -> tuple[int, int]:
    """This process's rank and the number of ranks, by its launcher's variables; (0, 1) without a launcher."""
    placement = find_placement(os.environ)
    return (0, 1) if placement is None else (placement.rank, placement.size or 1)

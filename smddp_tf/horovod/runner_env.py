"""`horovod.runner.common.util.env`: what a process's environment says."""

from __future__ import annotations

import os

from smddp_tf.lifecycle.placement import find_placement

__all__ = ["get_env_rank_and_size"]


def get_env_rank_and_size() -> tuple[int, int]:
    """This process's rank and the number of ranks, by its launcher's variables; (0, 1) without a launcher."""
    place = find_placement(os.environ)
    return (0, 1) if place is None else (place.rank, place.size or 1)

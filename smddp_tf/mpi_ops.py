"""The names of `horovod.tensorflow.mpi_ops`, for scripts that import them from there."""

from __future__ import annotations

from smddp_tf import basics
from smddp_tf._native import needs_tensorflow  # noqa: F401
from smddp_tf._native.topology_ops import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op
from smddp_tf.basics import *  # noqa: F403
from smddp_tf.functions import broadcast_
from smddp_tf.horovod.internals import (
    _allreduce,
    check_num_rank_power_of_2,
    gpu_available,
    handle_average_backwards_compatibility,
)
from smddp_tf.ops import allgather, alltoall, broadcast, grouped_allgather, grouped_reducescatter, join, reducescatter
from smddp_tf.reduce_op import Adasum, Average, Max, Min, Product, Sum

_basics = basics  # of Horovod an object, of which programs use the same names

__all__ = [
    *basics.__all__,
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "_allreduce",
    "allgather",
    "alltoall",
    "broadcast",
    "broadcast_",
    "check_num_rank_power_of_2",
    "gpu_available",
    "grouped_allgather",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]

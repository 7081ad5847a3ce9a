"""The names of `horovod.tensorflow.mpi_ops`, for scripts that import them from there."""

from __future__ import annotations

from smddp_tf.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
)
from smddp_tf.functions import broadcast_
from smddp_tf.incidental import (
    _allreduce,
    check_num_rank_power_of_2,
    gpu_available,
    handle_average_backwards_compatibility,
)
from smddp_tf.ops import allgather, broadcast
from smddp_tf.reduce_op import Average, Max, Min, Product, Sum

__all__ = [
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "_allreduce",
    "allgather",
    "broadcast",
    "broadcast_",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
]

"""Data-parallel training with TensorFlow on many processes: the drop-in for `horovod.tensorflow`.

>>> import smddp_tf as hvd
>>> hvd.init()

Importing this package imports neither TensorFlow nor native code; names that need them load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
from smddp_tf.reduce_op import Average, Max, Min, Product, Sum

if TYPE_CHECKING:
    from smddp_tf import data
    from smddp_tf.compression import Compression
    from smddp_tf.functions import broadcast_variables
    from smddp_tf.keras.optimizer import DistributedOptimizerTF as DistributedOptimizer
    from smddp_tf.keras.sync_batch_normalization import SyncBatchNormalization
    from smddp_tf.objects import allgather_object, broadcast_object
    from smddp_tf.ops import allgather, allreduce, barrier, broadcast, grouped_allreduce, join
    from smddp_tf.tape import DistributedGradientTape

__all__ = [
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "data",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
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

# Names whose modules import TensorFlow (or cloudpickle): module and name there.
_LAZY = {
    "Compression": ("smddp_tf.compression", "Compression"),
    "DistributedGradientTape": ("smddp_tf.tape", "DistributedGradientTape"),
    "DistributedOptimizer": ("smddp_tf.keras.optimizer", "DistributedOptimizerTF"),
    "SyncBatchNormalization": ("smddp_tf.keras.sync_batch_normalization", "SyncBatchNormalization"),
    "allgather": ("smddp_tf.ops", "allgather"),
    "allgather_object": ("smddp_tf.objects", "allgather_object"),
    "allreduce": ("smddp_tf.ops", "allreduce"),
    "barrier": ("smddp_tf.ops", "barrier"),
    "broadcast": ("smddp_tf.ops", "broadcast"),
    "broadcast_object": ("smddp_tf.objects", "broadcast_object"),
    "broadcast_variables": ("smddp_tf.functions", "broadcast_variables"),
    "grouped_allreduce": ("smddp_tf.ops", "grouped_allreduce"),
    "join": ("smddp_tf.ops", "join"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("smddp-tf")
    elif name == "data":
        value = importlib.import_module("smddp_tf.data")
    elif name in _LAZY:
        module, attribute = _LAZY[name]
        value = getattr(importlib.import_module(module), attribute)
        importlib.import_module("smddp_tf.compat").install_by_default()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})

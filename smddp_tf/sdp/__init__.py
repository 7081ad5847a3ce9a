"""`import smddp_tf.sdp as sdp` in place of `import smdistributed.dataparallel.tensorflow as sdp`.

>>> import smddp_tf.sdp as sdp
>>> sdp.init()

The functions are SMDDP's, implemented with `smddp_tf`. Names that need TensorFlow load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smddp_tf._native.tensorflow_import import import_with_tensorflow
from smddp_tf.basics import is_initialized, local_rank, local_size, rank, size
from smddp_tf.lifecycle import first_use
from smddp_tf.sdp.profiler import start_profiler, stop_profiler
from smddp_tf.sdp.world import get_worker_comm, init, shutdown

if TYPE_CHECKING:
    from smddp_tf.compression import Compression
    from smddp_tf.sdp import keras
    from smddp_tf.sdp.reductions import *
    from smddp_tf.sdp.training import DistributedGradientTape, DistributedOptimizer

__all__ = [
    "Compression", "DistributedGradientTape", "DistributedOptimizer", "ReduceOp", "allreduce", "broadcast",
    "broadcast_global_variables", "broadcast_variables", "get_worker_comm", "init", "is_initialized", "keras",
    "local_rank", "local_size", "oob_allreduce", "overlap", "rank", "shutdown", "size", "start_profiler",
    "stop_profiler",
]  # fmt: skip

_LAZY = {
    "BroadcastGlobalVariablesHook": "smddp_tf",
    "Compression": "smddp_tf.compression",
    "DistributedGradientTape": "smddp_tf.sdp.training",
    "DistributedOptimizer": "smddp_tf.sdp.training",
}  # the others are in `reductions`


if not TYPE_CHECKING:  # a misspelt name is an error of a type checker

    def __getattr__(name: str) -> Any:
        if name == "keras":
            value: Any = import_with_tensorflow("smddp_tf.sdp.keras")
        elif name in _LAZY or name in __all__:
            value = getattr(import_with_tensorflow(_LAZY.get(name, "smddp_tf.sdp.reductions")), name)
            first_use.begin()
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, "exceptions", "keras", "profiler"})

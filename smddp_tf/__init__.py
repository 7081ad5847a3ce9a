"""Data-parallel training with TensorFlow on many processes: the drop-in for `horovod.tensorflow`.

>>> import smddp_tf as hvd
>>> hvd.init()

Importing this package imports neither TensorFlow nor native code; names that need them load on first use.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from smddp_tf import basics, compat, process_sets
from smddp_tf._native.tensorflow_import import import_with_tensorflow
from smddp_tf.aliases import finder, table
from smddp_tf.basics import *
from smddp_tf.collectives.reduce_op import Adasum, Average, Max, Min, Product, Sum
from smddp_tf.lifecycle import first_use
from smddp_tf.process_sets import *

first_use.at_use(compat.install_by_default)
sys.meta_path.append(finder.Finder(table.MOVED))  # last: for what lies nowhere else

if TYPE_CHECKING:
    from smddp_tf import compression as compression
    from smddp_tf import data, elastic, insight, monitor
    from smddp_tf import mpi_ops as mpi_ops
    from smddp_tf.collectives.functions import broadcast_, broadcast_global_variables, broadcast_variables
    from smddp_tf.collectives.objects import allgather_object, broadcast_object, broadcast_object_fn
    from smddp_tf.collectives.ops import *
    from smddp_tf.collectives.topology_ops import *
    from smddp_tf.compat.tf1.optimizer import DistributedOptimizer
    from smddp_tf.compat.tf1.session_hooks import BroadcastGlobalVariablesHook
    from smddp_tf.compression import Compression
    from smddp_tf.data.batch_plan import plan_batch
    from smddp_tf.gradients.tape import DistributedGradientTape, PartialDistributedGradientTape
    from smddp_tf.insight.doctor import doctor
    from smddp_tf.keras import callbacks, schedules
    from smddp_tf.keras.fit.evaluate import evaluate
    from smddp_tf.keras.loading import load_model
    from smddp_tf.keras.optimizer.distributed import PartialDistributedOptimizer
    from smddp_tf.keras.schedules import scaled
    from smddp_tf.keras.sharding.memory import memory
    from smddp_tf.keras.sharding.partitioned_weights import partition_weights
    from smddp_tf.keras.sync_batch_normalization import SyncBatchNormalization
    from smddp_tf.monitor.summary import summary

    __version__: str

__all__ = [
    "Adasum", "Average", "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape",
    "DistributedOptimizer", "Max", "Min", "PartialDistributedGradientTape", "PartialDistributedOptimizer",
    "Product", "Sum", "SyncBatchNormalization", "allgather", "allgather_object", "allreduce", "alltoall",
    "barrier", "broadcast", "broadcast_", "broadcast_global_variables", "broadcast_object",
    "broadcast_object_fn", "broadcast_variables", "callbacks", "data", "doctor", "elastic", "evaluate",
    "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "insight", "join", "load_model",
    "local_rank_op", "local_size_op", "memory", "monitor", "partition_weights", "plan_batch",
    "process_set_included_op", "rank_op", "reducescatter", "scaled", "schedules", "size_op", "summary",
]  # fmt: skip
__all__ += basics.__all__
__all__ += process_sets.__all__

# Names whose modules import TensorFlow (or cloudpickle), by module.
_OF_MODULE = {
    "smddp_tf.collectives.topology_ops":
        ("local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "size_op"),
    "smddp_tf.data.batch_plan": ("plan_batch",),
    "smddp_tf.insight.doctor": ("doctor",),
    "smddp_tf.compression": ("Compression",),
    "smddp_tf.collectives.functions": ("broadcast_", "broadcast_global_variables", "broadcast_variables"),
    "smddp_tf.compat.horovod.internals":
        ("LocalGradientAggregationHelper", "_allreduce", "_cache", "_executing_eagerly", "_make_allreduce_grads_fn",
         "_make_subgraph", "check_num_rank_power_of_2", "gpu_available", "handle_average_backwards_compatibility",
         "refs_to_vars", "split_list", "vars_to_refs"),
    "smddp_tf.keras": ("PartialDistributedOptimizer", "SyncBatchNormalization", "callbacks", "evaluate", "load_model",
                       "memory", "partition_weights", "scaled", "schedules"),
    "smddp_tf.compat.tf1.optimizer": ("DistributedOptimizer",),
    "smddp_tf.monitor.summary": ("summary",),
    "smddp_tf.collectives.objects": ("allgather_object", "broadcast_object", "broadcast_object_fn"),
    "smddp_tf.collectives.ops": ("allgather", "allreduce", "alltoall", "barrier", "broadcast", "grouped_allgather",
                     "grouped_allreduce", "grouped_reducescatter", "join", "reducescatter"),
    "smddp_tf.gradients.tape": ("DistributedGradientTape", "PartialDistributedGradientTape"),
    "smddp_tf.compat.tf1.session_hooks": ("BroadcastGlobalVariablesHook",),
}  # fmt: skip
_LAZY = {name: module for module, names in _OF_MODULE.items() for name in names}

# Modules that scripts reach as attributes.
_MODULES = frozenset({"compression", "data", "elastic", "insight", "monitor", "mpi_ops"})


if not TYPE_CHECKING:  # a misspelt name is an error of a type checker

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            value: Any = importlib.import_module("importlib.metadata").version("smddp-tf")
        elif name in _MODULES:
            value = import_with_tensorflow(f"smddp_tf.{name}")
        elif name in _LAZY:
            value = getattr(import_with_tensorflow(_LAZY[name]), name)
            first_use.begin()
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Returns the names that programs use, without the modules that define them."""
    return sorted({*__all__, *_MODULES, "__version__", "keras", "process_sets"})

"""`import smddp_tf.keras as hvd` in place of `import horovod.tensorflow.keras as hvd`.

Example:

>>> import smddp_tf.keras as hvd
>>> hvd.init()
>>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), loss="mse")
>>> model.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

Every public name of `smddp_tf` for eager mode and `tf.function` is here as well. `allreduce`, `allgather`, `broadcast`,
`reducescatter` and `DistributedOptimizer` have the arguments of `horovod.tensorflow.keras`.
"""

from __future__ import annotations

from smddp_tf._native import needs_tensorflow  # noqa: F401

# isort: split

from smddp_tf import basics, process_sets
from smddp_tf.collectives import functions as _functions
from smddp_tf.collectives import topology_ops as _topology_ops
from smddp_tf.lifecycle import first_use as _first_use

try:
    import smddp_tf.keras._backend as _backend  # first: it refuses other backends
    from smddp_tf import data, insight, monitor
    from smddp_tf.basics import *
    from smddp_tf.collectives.functions import *
    from smddp_tf.collectives.ops import alltoall, barrier, grouped_allgather, grouped_allreduce, join
    from smddp_tf.collectives.reduce_op import Adasum, Average, Max, Min, Product, Sum
    from smddp_tf.collectives.scatter_ops import grouped_reducescatter
    from smddp_tf.collectives.topology_ops import *
    from smddp_tf.compression import Compression
    from smddp_tf.data.batch_plan import plan_batch
    from smddp_tf.gradients.tape import DistributedGradientTape, PartialDistributedGradientTape
    from smddp_tf.insight.doctor import doctor
    from smddp_tf.keras import callbacks, elastic, layers, schedules
    from smddp_tf.keras.fit.evaluate import evaluate
    from smddp_tf.keras.fit.patch import guard_fit as _guard_fit
    from smddp_tf.keras.loading import load_model
    from smddp_tf.keras.optimizer.distributed import DistributedOptimizer, PartialDistributedOptimizer
    from smddp_tf.keras.schedules import scaled
    from smddp_tf.keras.sharding.memory import memory
    from smddp_tf.keras.sharding.partitioned_weights import partition_weights
    from smddp_tf.keras.sync_batch_normalization import SyncBatchNormalization
    from smddp_tf.keras.values import allgather, allreduce, broadcast, reducescatter
    from smddp_tf.monitor.summary import summary
    from smddp_tf.process_sets import *
except ImportError as _error:
    # So that `import smddp_tf.keras.distribution` does nothing where Keras computes with JAX or PyTorch.
    if _error.name != "keras.backend":
        raise
    _message = str(_error)

    def __getattr__(name: str) -> object:
        raise (AttributeError if name.startswith("_") else ImportError)(_message)
else:
    _first_use.begin()
    if not _backend.LEGACY:
        _guard_fit()

__all__ = [
    "Adasum", "Average", "Compression", "DistributedGradientTape", "DistributedOptimizer", "Max", "Min",
    "PartialDistributedGradientTape", "PartialDistributedOptimizer", "Product", "Sum", "SyncBatchNormalization",
    "allgather", "allreduce", "alltoall", "barrier", "broadcast", "callbacks", "data", "doctor", "elastic",
    "evaluate", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "insight", "join", "layers",
    "load_model", "memory", "monitor", "partition_weights", "plan_batch",
    "reducescatter", "scaled", "schedules", "summary",
]  # fmt: skip
__all__ += _functions.__all__
__all__ += _topology_ops.__all__
__all__ += basics.__all__
__all__ += process_sets.__all__


def __dir__() -> list[str]:
    return sorted(__all__)

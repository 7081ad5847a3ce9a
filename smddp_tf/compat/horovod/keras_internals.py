"""`horovod._keras` and the modules in it, as far as programs look at them; it is private in Horovod.

The classes are there to be compared with: `isinstance(callback, horovod._keras.callbacks.MetricAverageCallbackImpl)`.
"""

from __future__ import annotations

from typing import Any

from smddp_tf.collectives import graph
from smddp_tf.keras.callbacks import BroadcastGlobalVariablesCallback as BroadcastGlobalVariablesCallbackImpl
from smddp_tf.keras.callbacks import LearningRateScheduleCallback as LearningRateScheduleCallbackImpl
from smddp_tf.keras.callbacks import LearningRateWarmupCallback as LearningRateWarmupCallbackImpl
from smddp_tf.keras.callbacks import MetricAverageCallback as MetricAverageCallbackImpl
from smddp_tf.keras.elastic import CommitStateCallback as CommitStateCallbackImpl
from smddp_tf.keras.elastic import UpdateBatchStateCallback as UpdateBatchStateCallbackImpl
from smddp_tf.keras.elastic import UpdateEpochStateCallback as UpdateEpochStateCallbackImpl
from smddp_tf.keras.optimizer.distributed import DistributedOptimizer
from smddp_tf.process_sets import ProcessSet, global_process_set

__all__ = [
    "BroadcastGlobalVariablesCallbackImpl", "CommitStateCallbackImpl", "LearningRateScheduleCallbackImpl",
    "LearningRateWarmupCallbackImpl", "MetricAverageCallbackImpl", "UpdateBatchStateCallbackImpl",
    "UpdateEpochStateCallbackImpl", "create_distributed_optimizer",
]  # fmt: skip


@graph.no_autograph
def create_distributed_optimizer(
    keras: object,
    optimizer: Any,
    name: str | None,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    gradient_predivide_factor: float,
    op: int,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """`smddp_tf.keras.DistributedOptimizer` with the arguments of Horovod's inner function.

    Args:
        keras: the module of Keras; has no effect.
        optimizer: Keras optimizer to wrap; for the others see `smddp_tf.keras.DistributedOptimizer`.

    Returns:
        The wrapped optimizer.
    """
    given = dict(locals())
    del given["keras"]
    return DistributedOptimizer(**given)

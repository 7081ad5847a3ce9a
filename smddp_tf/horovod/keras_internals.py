"""`horovod._keras` and the modules in it, as far as programs look at them; it is private in Horovod.

The classes are there to be compared with: `isinstance(callback, horovod._keras.callbacks.MetricAverageCallbackImpl)`.
"""

from __future__ import annotations

from typing import Any

from smddp_tf.keras.callbacks import BroadcastGlobalVariablesCallback as BroadcastGlobalVariablesCallbackImpl
from smddp_tf.keras.callbacks import LearningRateScheduleCallback as LearningRateScheduleCallbackImpl
from smddp_tf.keras.callbacks import LearningRateWarmupCallback as LearningRateWarmupCallbackImpl
from smddp_tf.keras.callbacks import MetricAverageCallback as MetricAverageCallbackImpl
from smddp_tf.keras.elastic import CommitStateCallback as CommitStateCallbackImpl
from smddp_tf.keras.elastic import UpdateBatchStateCallback as UpdateBatchStateCallbackImpl
from smddp_tf.keras.elastic import UpdateEpochStateCallback as UpdateEpochStateCallbackImpl
from smddp_tf.keras.optimizer.distributed import DistributedOptimizer

__all__ = [
    "BroadcastGlobalVariablesCallbackImpl",
    "CommitStateCallbackImpl",
    "LearningRateScheduleCallbackImpl",
    "LearningRateWarmupCallbackImpl",
    "MetricAverageCallbackImpl",
    "UpdateBatchStateCallbackImpl",
    "UpdateEpochStateCallbackImpl",
    "create_distributed_optimizer",
]

_PRE_TF_2_4_0 = False


def create_distributed_optimizer(keras: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """`smddp_tf.keras.DistributedOptimizer` with the module of Keras before its arguments, which makes no difference.

    Args:
        keras: the module of Keras.
        optimizer: see there, like the others.
    """
    del keras
    return DistributedOptimizer(optimizer, *args, **kwargs)

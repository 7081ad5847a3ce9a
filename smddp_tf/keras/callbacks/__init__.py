"""Callbacks for `Model.fit` on several ranks. Give the same list to `fit` on every rank."""

from __future__ import annotations

from smddp_tf.keras.callbacks.best_model_checkpoint import BestModelCheckpoint
from smddp_tf.keras.callbacks.broadcast_global_variables import BroadcastGlobalVariablesCallback
from smddp_tf.keras.callbacks.epoch_metrics import MetricAverageCallback, MetricSumCallback
from smddp_tf.keras.callbacks.learning_rate_schedule import LearningRateScheduleCallback, LearningRateWarmupCallback
from smddp_tf.keras.callbacks.preemption_checkpoint import PreemptionCheckpoint
from smddp_tf.keras.callbacks.rank_zero import on_rank_zero
from smddp_tf.keras.callbacks.throughput import Diagnose, Throughput
from smddp_tf.keras.callbacks.uneven_batches import UnevenBatchesCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "Diagnose",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "MetricSumCallback",
    "PreemptionCheckpoint",
    "Throughput",
    "UnevenBatchesCallback",
    "on_rank_zero",
]


def __dir__() -> list[str]:
    return sorted(__all__)

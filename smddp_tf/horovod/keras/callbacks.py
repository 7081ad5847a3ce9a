"""The callbacks of `horovod.keras`."""

from __future__ import annotations

from smddp_tf.keras import callbacks as _callbacks
from smddp_tf.keras.callbacks import (
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BestModelCheckpoint(_callbacks.BestModelCheckpoint):
    """`smddp_tf.keras.callbacks.BestModelCheckpoint` without `save_weights_only`, the third argument there."""

    def __init__(self, monitor="val_loss", verbose=0, mode="auto", save_freq="epoch", filepath=None):
        super().__init__(monitor=monitor, verbose=verbose, mode=mode, save_freq=save_freq, filepath=filepath)

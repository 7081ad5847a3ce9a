"""The callbacks of `horovod.keras`."""

from __future__ import annotations

from typing import Any

from smddp_tf.keras import callbacks as _callbacks
from smddp_tf.keras.callbacks import (
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)

__all__ = [
    "BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
    "LearningRateWarmupCallback", "MetricAverageCallback",
]  # fmt: skip


class BestModelCheckpoint(_callbacks.BestModelCheckpoint):
    """`smddp_tf.keras.callbacks.BestModelCheckpoint` without `save_weights_only`, the third argument there."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str = "epoch",
        filepath: Any = None,
    ) -> None:
        super().__init__(monitor=monitor, verbose=verbose, mode=mode, save_freq=save_freq, filepath=filepath)

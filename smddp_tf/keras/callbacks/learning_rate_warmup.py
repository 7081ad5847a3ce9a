"""LearningRateWarmupCallback: from the learning rate of one rank to that of all, gradually."""

from __future__ import annotations

from smddp_tf.basics import rank, size
from smddp_tf.keras.callbacks.learning_rate_schedule import LearningRateScheduleCallback


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size` to `initial_lr`, a little at every batch.

    With N ranks a step sees N times the samples, and the linear scaling rule asks for N times the learning rate. Such a
    rate is too large for the first epochs; gradual warm-up starts at the rate that is right for one rank and reaches
    the full one with the last batch of `warmup_epochs` (Goyal et al. 2017, sections 2.1 and 2.2,
    https://arxiv.org/abs/1706.02677). With one rank the rate stays as it is.

    At batch b (from 0) of epoch e, with S steps per epoch: `initial_lr / size * (1 + (size - 1) * t)` with
    `t = (e + (b + 1) / S) / warmup_epochs`. Afterwards the rate is left as it is.

    Example:

    >>> rate = 0.01 * hvd.size()
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9))
    >>> callbacks = [hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=3, verbose=1)]

    Args:
        initial_lr: Float, the full learning rate, already scaled by the number of ranks. `None`, as older Horovod
            scripts have it, takes the optimizer's; not where training is resumed. Defaults to `None`.
        warmup_epochs: Number of epochs it takes. Defaults to `5`.
        momentum_correction: Boolean; see `LearningRateScheduleCallback`. Defaults to `True`.
        steps_per_epoch: Integer. Defaults to `None`, what `fit` knows of its data.
        verbose: `1` makes rank 0 print a line when the warm-up is over. Defaults to `0`.
    """

    def __init__(
        self,
        initial_lr: float | None = None,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            initial_lr=initial_lr,
            multiplier=self._share_of_full_rate,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose > 0 and epoch == self.end_epoch - 1 and rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._read_rate():g}.")

    def _share_of_full_rate(self, epoch: float) -> float:
        done: float = (epoch + 1 / self.steps_per_epoch) / self.warmup_epochs
        return (1 + (size() - 1) * done) / size()

"""The learning rate as a multiple of an initial one, epoch by epoch or batch by batch; and its warm-up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.basics import rank, size
from smddp_tf.collectives.tensor_types import AnyOptimizer
from smddp_tf.keras._backend import LEGACY, keras
from smddp_tf.keras.roles.optimizers import innermost


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` from `start_epoch` up to, not including, `end_epoch`.

    Several of these, each with its own span of epochs, make a schedule. Outside of its span a callback leaves the
    learning rate as it is. The rate in force at the end of an epoch is written to its logs as `lr`; as `learning_rate`
    where a callback of Keras 3 (`ReduceLROnPlateau`, `LearningRateScheduler`, `TensorBoard`) writes it under that name.

    Example:

    >>> callbacks = [
    ...     hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=5),
    ...     hvd.callbacks.LearningRateScheduleCallback(rate, multiplier=lambda epoch: 1.0, start_epoch=5, end_epoch=30),
    ...     hvd.callbacks.LearningRateScheduleCallback(rate, multiplier=lambda epoch: 0.1, start_epoch=30),
    ... ]

    Args:
        initial_lr: Float. `None`, as older Horovod scripts have it, takes the optimizer's learning rate at the first
            `fit`; not where training is resumed, as that rate may have been multiplied already. Defaults to `None`.
        multiplier: Function of the epoch, or a number, which means exponential decay from `start_epoch` on:
            `multiplier ** (epoch - start_epoch)`. With `initial_lr=None` a number is a constant factor, as it was in
            the Horovod versions that had no `initial_lr`.
        start_epoch: Integer, the first epoch of the span. Defaults to `0`.
        end_epoch: Integer, the first epoch after the span. Defaults to `None`, no end.
        staircase: Boolean. `True` sets the rate at the first batch of an epoch, with a whole number for the epoch;
            `False` at every batch, with `epoch + batch / steps_per_epoch`. Defaults to `True`.
        momentum_correction: Boolean. Adapts the momentum of SGD and RMSprop when the rate changes, after Remark 2 of
            Goyal et al. 2017, https://arxiv.org/abs/1706.02677. Defaults to `True`.
        steps_per_epoch: Integer, for `staircase=False`. Defaults to `None`, what `fit` knows of its data.

    Raises:
        ValueError: If `multiplier` is missing; in `fit`, if the steps of an epoch are unknown, the optimizer's learning
            rate cannot be set, or training is resumed without `initial_lr`.
    """

    for_all_ranks = True
    rate_name = "lr"  # `fit` changes it

    def __init__(
        self,
        initial_lr: float | None = None,
        multiplier: float | Callable[[float], float] | None = None,
        start_epoch: int = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if multiplier is None:
            raise ValueError(
                "`multiplier` must be a number or a function of the epoch. Received: multiplier=None. "
                "Pass it by name: LearningRateScheduleCallback(initial_lr=0.1, multiplier=lambda epoch: 0.9**epoch)."
            )
        self.initial_lr: Any = initial_lr
        self.multiplier = multiplier if callable(multiplier) else _of_number(multiplier, initial_lr, start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch: Any = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch: Any = steps_per_epoch
        self.current_epoch: Any = None
        self._detect_steps = not staircase and not steps_per_epoch
        self._is_stepped = False  # whether `initial_lr` was taken from an optimizer that had trained before

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        rate = self._read_rate()
        if self.initial_lr is None:
            self.initial_lr = rate
            self._is_stepped = int(innermost(self.model.optimizer).iterations.numpy()) > 0
        if self._detect_steps:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__} could not find out the number of steps per epoch: the data given to `fit` "
                    "does not tell its length. Received: steps_per_epoch=None. Pass `steps_per_epoch` to the callback "
                    "or to `fit`."
                )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.current_epoch = epoch
        if self._is_stepped and epoch > 0 and (self.end_epoch is None or epoch < self.end_epoch):
            raise ValueError(
                f"{type(self).__name__} needs `initial_lr` where training is resumed: the optimizer's learning rate "
                "may have been multiplied already, and would be so twice. Received: initial_lr=None, a `fit` that "
                f"begins with epoch {epoch} and an optimizer with the learning rate {self.initial_lr:g} after "
                f"{int(innermost(self.model.optimizer).iterations.numpy())} steps. Pass "
                "`initial_lr`, the learning rate with which training began."
            )
        self._is_stepped = False

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        has_ended = self.end_epoch is not None and self.current_epoch >= self.end_epoch
        if has_ended or self.current_epoch < self.start_epoch:
            return
        if not self.staircase:
            self._set_rate(self.current_epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._set_rate(self.current_epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs[self.rate_name] = self._read_rate()

    def _set_rate(self, epoch: float) -> None:
        old_rate = self._read_rate()
        self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)
        if self.momentum_correction:
            scale_momentum(self.model.optimizer, old_rate, self._read_rate())

    def _read_rate(self) -> float:
        optimizer = self.model.optimizer
        rate = optimizer.learning_rate
        if not hasattr(rate, "assign"):  # a schedule gives a tensor
            raise ValueError(
                f"{type(self).__name__} needs an optimizer whose learning rate is a number that can be set. "
                f"Received: an optimizer of type {type(optimizer).__name__} with a schedule or a function as its "
                "learning rate. Give it a float, or in place of this callback a hvd.schedules.Warmup(schedule, ...)."
            )
        return float(rate.numpy())


def _of_number(number: float, initial_lr: float | None, start_epoch: int) -> Callable[[float], float]:
    return lambda epoch: number if initial_lr is None else number ** (epoch - start_epoch)


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


def scale_momentum(optimizer: AnyOptimizer, old_rate: float, new_rate: float) -> None:
    """Keeps momentum buffers right when the learning rate changes (Goyal et al. 2017, Remark 2).

    Momentum SGD can be written with the learning rate outside of the buffer or inside of it:

        u <- m * u + g,        w <- w - lr * u         (9)
        v <- m * v + lr * g,   w <- w - v              (10)

    They agree, with v = lr * u, as long as lr is constant. Keras stores v (with the sign turned: `velocity`). Right
    after lr goes from `old` to `new`, v still holds steps taken at `old`; to go on like (9), where a new rate takes
    effect at once on all that was gathered, v must be multiplied by new / old. That is the paper's
    v_{t+1} = m * (lr_{t+1} / lr_t) * v_t + lr_{t+1} * g, and it is what this does, once for each change. Scaling the
    buffer, unlike lending `m` another value for one batch, is exact for Nesterov momentum too, and needs no new trace
    of the training step (in Keras 3 `momentum` is a number frozen into it). Without buffers of form (10) it does
    nothing.

    Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, https://arxiv.org/abs/1706.02677
    """
    if old_rate in (0.0, new_rate):
        return
    if buffers := _buffers_holding_rate(optimizer):
        _multiply(buffers, tf.constant(new_rate / old_rate, tf.float64))


def _buffers_holding_rate(optimizer: AnyOptimizer) -> list[tf.Variable]:
    """The buffers whose entries are multiples of the learning rate: SGD's and RMSprop's.

    Adam, Lion, Muon and others keep averages of gradients, as in (9), and need no correction.
    """
    optimizer = innermost(optimizer)
    if LEGACY and isinstance(optimizer, (keras.optimizers.legacy.SGD, keras.optimizers.legacy.RMSprop)):
        return [slots["momentum"] for slots in optimizer._slots.values() if "momentum" in slots]
    names = ((keras.optimizers.SGD, "momentums"), (keras.optimizers.RMSprop, "_momentums"))
    buffers = [each for kind, name in names if isinstance(optimizer, kind) for each in getattr(optimizer, name, [])]
    return [buffer if LEGACY else getattr(buffer, "value", buffer) for buffer in buffers if buffer is not None]


@tf.function(autograph=False)
def _multiply(variables: Sequence[tf.Variable], ratio: tf.Tensor) -> None:
    for variable in variables:
        variable.assign(variable * tf.cast(ratio, variable.dtype))

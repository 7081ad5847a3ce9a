"""Learning rates that grow with the number of ranks: `hvd.scaled`, and the schedules of `hvd.schedules`."""

from __future__ import annotations

import numbers
from typing import Any

import tensorflow as tf

from smddp_tf import basics
from smddp_tf.collectives import reduce_op, run_time_values
from smddp_tf.keras._backend import keras
from smddp_tf.keras.roles import optimizers, wrapping

__all__ = ["Warmup"]

_RULES = {"linear": 1.0, "sqrt": 0.5}  # powers of the number of batches in an update


def scaled(
    lr: float, rule: str = "linear", optimizer: keras.optimizers.Optimizer | None = None, passes: int | None = None
) -> float:
    """The learning rate of all ranks, from one that is right for a single rank's batch.

    An update sees ranks x passes such batches. With `rule="linear"` the rate grows as much (Goyal et al. 2017, section
    2.1, https://arxiv.org/abs/1706.02677), with "sqrt" as the square root (Krizhevsky 2014,
    https://arxiv.org/abs/1404.5997).

    Example:
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=4)
    >>> optimizer.learning_rate = hvd.scaled(0.1, optimizer=optimizer)

    Args:
        lr: float, the rate for one rank and one pass.
        rule: "linear" or "sqrt". Defaults to "linear".
        optimizer: the one that will have the rate, whose process set and passes (`backward_passes_per_step`, Keras's
            `gradient_accumulation_steps`) are counted. Where SGD applies sums (of passes, without
            `average_aggregated_gradients`; of ranks, with `op=hvd.Sum`), its rate is divided by what they add up.
        passes: int, passes of an update that applies their mean. Defaults to the optimizer's, or 1.

    Raises:
        ValueError: `lr` is no positive number, `rule` is unknown, or `passes` is not the optimizer's.
    """
    if not isinstance(lr, numbers.Real) or isinstance(lr, bool) or not lr > 0:
        raise ValueError(f"`lr` must be a positive number; hvd.schedules.Warmup takes schedules. Received: lr={lr!r}.")
    ranks, counted, summed = _counts(optimizer) if optimizer is not None else (basics.size(), passes or 1, 1)
    if passes not in (None, counted) or counted < 1:
        raise ValueError(f"`passes` must be 1 or more, and the optimizer's ({counted}). Received: passes={passes!r}.")
    return float(lr) * _factor(rule, ranks * counted) / summed


def _counts(optimizer: keras.optimizers.Optimizer) -> tuple[int, int, int]:
    """Ranks and passes of an update, and how many gradients SGD's update adds up."""
    inner = optimizers.innermost(optimizer)
    passes = getattr(inner, "gradient_accumulation_steps", None) or 1  # Keras applies their mean
    reducer = wrapping.reducer_on(optimizer) or wrapping.reducer_on(inner)
    if reducer is None:
        return basics.size(), passes, 1
    settings = reducer.settings
    ranks, own = settings.process_set.size(), settings.backward_passes_per_step
    summed = (ranks if settings.op == reduce_op.Sum else 1) * (1 if settings.average_aggregated_gradients else own)
    return ranks, passes * own, summed if isinstance(inner, keras.optimizers.SGD) else 1


def _factor(rule: str, batches: Any) -> Any:
    if rule not in _RULES:
        raise ValueError(f"`rule` must be one of {', '.join(map(repr, _RULES))}. Received: rule={rule!r}.")
    return batches ** _RULES[rule]


@keras.saving.register_keras_serializable(package="smddp_tf")
class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Raises a learning rate from that of one rank to that of all, a little at every step; then follows a schedule.

    For optimizers with a schedule, which `LearningRateWarmupCallback` refuses, and for loops of your own. At step i
    (from 0) the rate is `learning_rate(i) * (1 + (f - 1) * min(1, (i + 1) / warmup_steps))`, where f is ranks x passes,
    or its square root (gradual warm-up, Goyal et al. 2017, section 2.2, https://arxiv.org/abs/1706.02677). The number
    of ranks is that of the moment, also in elastic training; before `hvd.init()` it is 1. Momentum is not corrected.

    A model saved with it loads in programs that `import smddp_tf.keras`, elsewhere with `compile=False`.

    Example:
    >>> decay = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=10_000)
    >>> rate = hvd.schedules.Warmup(decay, warmup_steps=500)
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9))

    Args:
        learning_rate: float or `LearningRateSchedule`, the rate for one rank's batch. Do not scale it.
        warmup_steps: int, steps to the full rate, as `optimizer.iterations` counts them.
        rule: "linear" or "sqrt", as for `hvd.scaled`. Defaults to "linear".
        passes: int, passes of an update that applies their mean; 1 where SGD applies their sum. Defaults to 1.

    Raises:
        ValueError: `rule` is unknown, or `warmup_steps` or `passes` is less than 1.
    """

    def __init__(self, learning_rate: Any, warmup_steps: int, rule: str = "linear", passes: int = 1) -> None:
        super().__init__()
        _factor(rule, 1)  # refuses an unknown one
        if not min(warmup_steps, passes) >= 1:
            raise ValueError(f"Pass 1 or more. Received: warmup_steps={warmup_steps!r}, passes={passes!r}.")
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps
        self.rule, self.passes = rule, passes

    def __call__(self, step: tf.Tensor | tf.Variable | int) -> tf.Tensor:
        step = tf.cast(tf.convert_to_tensor(step), tf.float32)
        rate = self.learning_rate(step) if callable(self.learning_rate) else self.learning_rate
        ranks = run_time_values.size() if basics.is_initialized() else 1
        full = _factor(self.rule, tf.cast(ranks * self.passes, tf.float32))
        return rate * (1.0 + (full - 1.0) * tf.minimum((step + 1.0) / self.warmup_steps, 1.0))

    def get_config(self) -> dict[str, Any]:
        """For a saved file."""
        own = {name: getattr(self, name) for name in ("learning_rate", "warmup_steps", "rule", "passes")}
        serialize = keras.optimizers.schedules.serialize
        return {**own, "learning_rate": serialize(own["learning_rate"])} if callable(own["learning_rate"]) else own

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Warmup:
        """Returns the schedule that `get_config` has described."""
        if isinstance(rate := config["learning_rate"], dict):
            rate = keras.optimizers.schedules.deserialize(rate)
        return cls(**{**config, "learning_rate": rate})

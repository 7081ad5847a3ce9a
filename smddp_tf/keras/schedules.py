"""Learning rate schedules that know the number of ranks: `hvd.schedules`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp_tf import basics
from smddp_tf._native import run_time_values
from smddp_tf.keras._backend import keras
from smddp_tf.keras.learning_rate import factor

__all__ = ["Warmup"]

_schedules = keras.optimizers.schedules


@keras.saving.register_keras_serializable(package="smddp_tf")
class Warmup(_schedules.LearningRateSchedule):
    """Raises a learning rate from that of one rank to that of all, a little at every step; goes on with a schedule.

    For an optimizer that has a schedule, which `LearningRateWarmupCallback` refuses, and for loops without `fit`. At
    step i (from 0), with k times one rank's batch in an update and W `warmup_steps`, the rate is `learning_rate(i) *
    (1 + (f - 1) * min(1, (i + 1) / W))`, where f is k with `rule="linear"` and its square root with "sqrt" (gradual
    warm-up: Goyal et al. 2017, section 2.2, https://arxiv.org/abs/1706.02677). The number of ranks is asked at every
    step: when elastic training goes on with other ranks, the rate follows. Before `hvd.init()` there is one rank.

    A model saved with it loads in programs that `import smddp_tf.keras`. Elsewhere Keras does not know the class
    ("Could not locate class 'Warmup'"): use `load_model(..., compile=False)`. Momentum is not corrected as by the
    callback: the rates of two steps differ by a factor of at most `1 + (f - 1) / W`.

    Example:
    >>> decay = keras.optimizers.schedules.CosineDecay(0.1, decay_steps=10_000)
    >>> rate = hvd.schedules.Warmup(decay, warmup_steps=500)
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.9))

    Args:
        learning_rate: float or `LearningRateSchedule`, the rate for one rank's batch: not scaled, this class does that.
        warmup_steps: int, steps until the full rate, as `optimizer.iterations` counts them.
        rule: "linear" or "sqrt"; see `hvd.scaled`. Defaults to "linear".
        passes: int, passes of an update whose mean is applied. Leave it at 1 where SGD applies their sum, which is as
            many times as large. Defaults to 1.
        name: string. Defaults to "Warmup".

    Raises:
        ValueError: `rule` is unknown, or `warmup_steps` or `passes` is less than 1.
    """

    def __init__(
        self, learning_rate: Any, warmup_steps: int, rule: str = "linear", passes: int = 1, name: str = "Warmup"
    ) -> None:
        super().__init__()
        factor(rule, 1)  # refuses an unknown one
        if not warmup_steps >= 1 or not passes >= 1:
            raise ValueError(
                f"`warmup_steps` and `passes` must be 1 or more. Received: warmup_steps={warmup_steps!r}, "
                f"passes={passes!r}."
            )
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps
        self.rule, self.passes, self.name = rule, passes, name

    def __call__(self, step: Any) -> Any:
        step = tf.cast(tf.convert_to_tensor(step), tf.float32)
        rate = self.learning_rate(step) if callable(self.learning_rate) else self.learning_rate
        ranks = run_time_values.size() if basics.is_initialized() else 1
        full = factor(self.rule, tf.cast(ranks * self.passes, tf.float32))
        return rate * (1.0 + (full - 1.0) * tf.minimum((step + 1.0) / self.warmup_steps, 1.0))

    def get_config(self) -> dict[str, Any]:
        """For a saved file."""
        rate = _schedules.serialize(self.learning_rate) if callable(self.learning_rate) else self.learning_rate
        own = {name: getattr(self, name) for name in ("warmup_steps", "rule", "passes", "name")}
        return {"learning_rate": rate, **own}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Warmup:
        """What `get_config` described."""
        rate = config["learning_rate"]
        return cls(**{**config, "learning_rate": _schedules.deserialize(rate) if isinstance(rate, dict) else rate})

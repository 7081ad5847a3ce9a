"""scaled: the learning rate for a batch that is several times as large as the one it was found for."""

from __future__ import annotations

import numbers
from typing import Any

from smddp_tf import basics
from smddp_tf.keras._backend import keras
from smddp_tf.keras.optimizer.accumulation import innermost
from smddp_tf.keras.optimizer.wrapping import reducer_on
from smddp_tf.reduce_op import Sum

RULES = {"linear": 1.0, "sqrt": 0.5}  # the power of the number of batches


def scaled(lr: float, rule: str = "linear", optimizer: Any = None, passes: int | None = None) -> float:
    """The learning rate of all ranks, from `lr`, which is right for one rank's batch in one pass.

    An update sees ranks x passes such batches. With `rule="linear"` the rate grows as much (Goyal et al. 2017, section
    2.1, https://arxiv.org/abs/1706.02677: SGD, from the warm-up on, up to a limit that the model sets); with "sqrt" as
    its square root, which keeps the variance of an update (Krizhevsky 2014, https://arxiv.org/abs/1404.5997), and is
    often used with Adam. It needs a warm-up: `hvd.schedules.Warmup` scales and warms up.

    Example:
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=4)
    >>> optimizer.learning_rate = hvd.scaled(0.1, optimizer=optimizer)

    Args:
        lr: float, the rate for one rank and one pass.
        rule: "linear" or "sqrt". Defaults to "linear".
        optimizer: the one that will have the rate. Its process set, its `backward_passes_per_step` or Keras's
            `gradient_accumulation_steps` are counted. SGD's update is already so many times as large where it adds up
            passes (`average_aggregated_gradients=False`) or ranks (`op=hvd.Sum`): its rate is divided by that.
        passes: int, passes of an update, whose mean the optimizer applies. Defaults to the optimizer's, or 1.

    Raises:
        ValueError: `lr` is not a positive number, `rule` is unknown, or `passes` contradicts the optimizer.
    """
    if isinstance(lr, bool) or not isinstance(lr, numbers.Real) or not lr > 0:
        raise ValueError(f"`lr` must be a positive number; `hvd.schedules.Warmup` takes schedules. Received: lr={lr!r}.")
    ranks, counted, summed = basics.size(), passes or 1, 1
    if optimizer is not None:
        ranks, counted, summed = _counts(optimizer)
        if passes not in (None, counted):
            raise ValueError(f"`passes` must be those of the optimizer, {counted}. Received: passes={passes!r}.")
    return float(lr) * factor(rule, ranks * counted) / summed


def factor(rule: str, batches: Any) -> Any:
    """What the rate is multiplied by, for a number or a tensor of so many batches in an update."""
    if rule not in RULES:
        raise ValueError(f"`rule` must be one of {', '.join(map(repr, RULES))}. Received: rule={rule!r}.")
    return batches ** RULES[rule]


def _counts(optimizer: Any) -> tuple[int, int, int]:
    """Ranks and passes of an update, and how many times the mean gradient SGD's update already holds."""
    inner = innermost(optimizer)
    reducer = reducer_on(optimizer) or reducer_on(inner)
    passes = getattr(inner, "gradient_accumulation_steps", None) or 1  # whose mean Keras applies
    if reducer is None:
        return basics.size(), passes, 1
    settings = reducer.settings
    ranks, own = settings.process_set.size(), settings.backward_passes_per_step
    summed = (ranks if settings.op == Sum else 1) * (1 if settings.average_aggregated_gradients else own)
    return ranks, passes * own, summed if isinstance(inner, keras.optimizers.SGD) else 1

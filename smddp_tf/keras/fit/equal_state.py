"""Makes learning rates and weights equal on all ranks again, where callbacks have changed them on some only."""

from __future__ import annotations

from typing import Any

import numpy as np

from smddp_tf.collectives.functions import broadcast_variables
from smddp_tf.collectives.rank_facts import warn_on_rank_zero
from smddp_tf.keras.fit import start_check
from smddp_tf.keras.roles.local_variables import local_of


def rates_of(model: Any) -> list[float]:
    """The learning rate of the model's optimizer, if it is one that can be set; else nothing."""
    return [float(optimizer.learning_rate.numpy()) for optimizer in _optimizers(model)]


def take_rates(model: Any, of_ranks: np.ndarray[Any, Any], when: str) -> bool:
    """Gives this rank rank 0's learning rates, with a warning of rank 0, where the ranks differ.

    Args:
        model: the model that is trained.
        of_ranks: float64 [ranks, rates], what `rates_of` gave on each rank.
        when: "began" or "ended" an epoch, for the warning.

    Returns:
        Whether they differ.
    """
    if (of_ranks == of_ranks[0]).all():
        return False
    warn_on_rank_zero(
        f"The ranks {when} an epoch with different learning rates; all go on with rank 0's. "
        f"Received: {of_ranks.tolist()}, by rank. Give all ranks the same callbacks, and put "
        "hvd.callbacks.MetricAverageCallback() before those that read metrics, such as ReduceLROnPlateau, so "
        "that they decide the same everywhere.",
    )
    for optimizer, rate in zip(_optimizers(model), of_ranks[0]):
        optimizer.learning_rate = rate
    return True


def take_weights(model: Any, warning: str) -> None:
    """Gives all ranks rank 0's weights and optimizer state, with a warning, where they differ; all call it together."""
    if start_check.first_difference(model) is not None:
        warn_on_rank_zero(warning)
        own = {id(variable) for variable in local_of(model)}
        shared = {id(v): v for v in (*model.weights, *start_check.compared(model))}
        broadcast_variables([v for key, v in shared.items() if key not in own], root_rank=0)


def _optimizers(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    has_rate = optimizer is not None and hasattr(optimizer.learning_rate, "assign")
    return [optimizer] if has_rate else []

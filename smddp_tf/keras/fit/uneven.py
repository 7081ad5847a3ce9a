"""Uneven data in `fit`: the facts that ranks exchange before training, and the steps that follow from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from smddp_tf.keras.callbacks.uneven_batches import ERROR, JOIN, OFF, SHORTEST


class Supply(NamedTuple):
    """The facts of one rank's data when `fit` begins.

    Attributes:
        batches: the number of batches the data have; None if they do not tell, `math.inf` if they never end.
        steps_per_epoch: as given to `fit`, or None.
        steps_per_execution: as given to `compile`.
        breaks_off: whether this Keras would break off in the middle of a call that takes several steps.
        rows: under a `keras.distribution`, where means are over rows: the rows of each batch, 0 if they differ.
            Without one None.
    """

    batches: float | None
    steps_per_epoch: int | None
    steps_per_execution: int
    breaks_off: bool
    rows: int | None = None

    def limit(self) -> float:
        """The most steps an epoch can have here. With `steps_per_epoch`, Keras takes whole calls."""
        if self.steps_per_epoch is None:
            return math.inf if self.batches is None else self.batches
        return -(-self.steps_per_epoch // self.steps_per_execution) * self.steps_per_execution

    def is_exact(self) -> bool:
        """Do epochs have exactly `limit()` steps?"""
        if self.steps_per_epoch is None:
            return self.batches is not None
        return self.batches == math.inf

    def __str__(self) -> str:
        steps = f"steps_per_epoch={self.steps_per_epoch}, " if self.steps_per_epoch else ""
        batches = {None: "an unknown number of", math.inf: "endless"}.get(self.batches, self.batches)
        return f"{steps}{batches} batches"


class StepsPlan(NamedTuple):
    """The number of steps of all ranks, which each rank computes from the `Supply` of all.

    Attributes:
        limit: steps after which every rank ends an epoch at the latest, or `math.inf`.
        watched: whether steps must tell which ranks are active: an epoch may end before the limit, or on some ranks
            only.
        exact: whether epochs have exactly `limit` steps, so that no rank needs to look for their end.
        needed: the number of ranks that must be active in a step that counts.
        by_rows: whether means are weighted by the rows of the ranks' batches.
    """

    limit: float
    watched: bool
    exact: bool
    needed: int
    by_rows: bool = False


def plan_for(mode: str, supplies: Sequence[Supply]) -> StepsPlan | None:
    """Returns the `StepsPlan`, or None where nothing needs to be done: all ranks have equally many batches."""
    first = supplies[0]
    if len({supply.steps_per_execution for supply in supplies}) > 1:
        raise ValueError(
            "All ranks must compile the model with the same `steps_per_execution`. Received: "
            f"{[supply.steps_per_execution for supply in supplies]}, by rank."
        )
    by_rows = first.rows is not None and (first.rows == 0 or any(supply.rows != first.rows for supply in supplies))
    needs_nothing = all(supply == first for supply in supplies) and first.batches is not None and not by_rows
    if mode == OFF or (needs_nothing and not _ends_inside_a_call(first)):
        return None
    limits = [supply.limit() for supply in supplies]
    exact = all(supply.is_exact() for supply in supplies)
    if by_rows or mode == JOIN:
        return StepsPlan(max(limits), True, exact, 1, by_rows)
    if mode == ERROR and exact and len(set(limits)) > 1:
        raise ValueError(uneven_message(listed(supplies)))
    if mode == SHORTEST and exact:
        limit = min(limits)
        if first.breaks_off:
            limit -= limit % first.steps_per_execution
        if limit > 0:
            return StepsPlan(limit, False, True, len(supplies))
        raise ValueError(
            'UnevenBatchesCallback(mode="shortest"): no step is left that every rank has data for. '
            f'Received: {"; ".join(listed(supplies))}. Give every rank data, or use mode="join".'
        )
    return StepsPlan(max(limits) if mode == ERROR else min(limits), True, exact, len(supplies))


def uneven_message(counts: Sequence[str]) -> str:
    return (
        'The ranks have different numbers of batches, which UnevenBatchesCallback(mode="error") refuses. '
        f"Received: {'; '.join(counts)}. Give every rank equally many, for example by `steps_per_epoch`, "
        'or use mode="join" or mode="shortest".'
    )


def listed(supplies: Sequence[Any]) -> list[str]:
    """A line for each rank."""
    return [f"rank {i}: {supply}" for i, supply in enumerate(supplies)]


def _ends_inside_a_call(supply: Supply) -> bool:
    if supply.batches is None or supply.batches == math.inf:
        return False
    return supply.breaks_off and supply.batches % supply.steps_per_execution != 0

"""Uneven data in `fit`: what the ranks tell each other before training, and how long their epochs are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank, size
from smddp_tf.collectives.functions import allgather_object
from smddp_tf.keras.callbacks.uneven_batches import ERROR, JOIN, OFF, SHORTEST
from smddp_tf.keras.roles import active_ranks, input_waits
from smddp_tf.keras.roles.step_hooks import StepHooks

if TYPE_CHECKING:
    from smddp_tf.keras.fit.epoch_data import EpochData


class Supply(NamedTuple):
    """What one rank knows about its data when `fit` begins.

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
    """What all ranks do, worked out by each from everybody's `Supply`.

    Attributes:
        limit: steps after which every rank ends an epoch at the latest, or `math.inf`.
        watched: whether steps must tell which ranks are active: an epoch may end before the limit, or on some ranks
            only.
        exact: whether epochs have exactly `limit` steps, so that nobody needs to look for their end.
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
    if by_rows:
        return StepsPlan(max(limits), True, exact, 1, True)
    if mode == ERROR and exact and len(set(limits)) > 1:
        raise ValueError(uneven_message(_listed(supplies)))
    if mode == JOIN:
        return StepsPlan(max(limits), True, exact, 1)
    if mode == SHORTEST and exact:
        limit = min(limits)
        if first.breaks_off:
            limit -= limit % first.steps_per_execution
        if limit > 0:
            return StepsPlan(limit, False, True, len(supplies))
        raise ValueError(
            'UnevenBatchesCallback(mode="shortest"): no step is left that every rank has data for. '
            f'Received: {"; ".join(_listed(supplies))}. Give every rank data, or use mode="join".'
        )
    return StepsPlan(max(limits) if mode == ERROR else min(limits), True, exact, len(supplies))


def uneven_message(counts: Sequence[str]) -> str:
    return (
        'The ranks have different numbers of batches, which UnevenBatchesCallback(mode="error") refuses. '
        f"Received: {'; '.join(counts)}. Give every rank equally many, for example by `steps_per_epoch`, "
        'or use mode="join" or mode="shortest".'
    )


def _listed(supplies: Sequence[Any]) -> list[str]:
    return [f"rank {i}: {supply}" for i, supply in enumerate(supplies)]


def _ends_inside_a_call(supply: Supply) -> bool:
    if supply.batches is None or supply.batches == math.inf:
        return False
    return supply.breaks_off and supply.batches % supply.steps_per_execution != 0


class UnevenEpochs:
    """Runs the epochs of one `fit` after a `StepsPlan`.

    Attributes:
        function: Keras's train function, traced with the hooks of uneven steps.
        watched: whether it must be called in the place of that.
    """

    def __init__(
        self, model: Any, data: EpochData, supply: Supply, steps: StepsPlan, mode: str, hooks: StepHooks
    ) -> None:
        self._model = model
        self._data = data
        self._supply = supply
        self._plan = steps
        self._mode = mode
        self._hooks = hooks
        self._over = False
        self._calls = 0
        self._active_steps_of_iterator = 0.0
        self.function: Any = None
        self.watched = steps.watched
        data.prepare(supply, steps)

    def begin(self) -> None:
        """Before the first epoch: has the model's variables made, so that steps without data can spare them."""
        if not self._plan.watched:
            return
        batch = next(self._data.padding)[1]
        try:
            self._model._symbolic_build(data_batch=batch)
        except Exception:  # a model that cannot be built from shapes alone; its first step builds it
            pass

    def begin_epoch(self) -> None:
        """Gives Keras's iterator the agreed length, and data of this rank's own from where they should go on."""
        continues = self._continues()
        if not continues:
            self._active_steps_of_iterator = 0.0
        self._data.set_length(self._plan.limit, continues)
        self._over = False
        self._calls = 0
        if self._plan.watched:
            active_ranks.process_wide().needed.assign(float(self._plan.needed))
            active_ranks.process_wide().by_rows.assign(self._plan.by_rows)
            self._hooks.active_steps.assign(0.0)
            self._hooks.valid.assign(0.0)

    def _continues(self) -> bool:
        """With `steps_per_epoch` the data go on in the next epoch, unless they ran out."""
        if self._supply.steps_per_epoch is None:
            return False
        if not self._plan.watched:
            return True
        expected = min(self._calls * self._supply.steps_per_execution, self._supply.limit())
        active_steps = float(self._hooks.active_steps)
        self._active_steps_of_iterator += active_steps
        return active_steps == expected and not (
            self._supply.batches and self._active_steps_of_iterator >= self._supply.batches
        )

    def __call__(self, iterator: Any) -> Any:
        """Runs the train function on a batch of this rank, or on zeros; says when the epoch is over for all ranks."""
        if self._over:
            raise self._end_of_data()
        if self._calls * self._supply.steps_per_execution >= self._supply.limit():
            iterator = self._data.padding if self._supply.steps_per_epoch else iterator
        valid_before = float(self._hooks.valid) if not self._plan.exact else 0.0
        logs = self.function(iterator)
        self._calls += 1
        if self._hooks.incomplete:
            if float(self._hooks.active_steps) == 0.0:
                self._model.reset_metrics()
            self._hooks.trace_again(self._model)
        if self._calls == 1:
            self._check_step_reduces()
        if not self._plan.exact:
            self._look_for_end(valid_before)
        return logs

    def _look_for_end(self, valid_before: float) -> None:
        count = float(active_ranks.process_wide().count)
        if self._mode == ERROR and 0 < count < size():
            name = of_thread("model.fit (batches by rank)")
            skipped = int(active_ranks.process_wide().flag.numpy() > 0.5)  # this step, where this rank had data
            counts = allgather_object(int(self._hooks.active_steps) + skipped, name=name)
            raise ValueError(uneven_message(_listed([f"{steps} batches" for steps in counts])))
        if count >= self._plan.needed:
            return
        self._over = True
        valid = float(self._hooks.valid) - valid_before
        input_waits.take_back(self._supply.steps_per_execution - valid)
        if valid == 0:
            raise self._end_of_data()

    @staticmethod
    def _end_of_data() -> Any:
        return tf.errors.OutOfRangeError(None, None, "the data of all ranks that count are used up")

    def _check_step_reduces(self) -> None:
        if float(active_ranks.process_wide().count) >= 0.0:
            return
        raise RuntimeError(
            "The training step of this model reduces nothing that tells which ranks have data left, but ranks may have "
            f"different numbers of batches. Received: {self._supply} on rank {rank()}. In `train_step` call `apply` or "
            "`apply_gradients` of an optimizer wrapped by hvd.DistributedOptimizer, outside of a tf.function that ran "
            'before; or give all ranks equally many batches and use UnevenBatchesCallback(mode="off").'
        )

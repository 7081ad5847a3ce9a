"""Uneven data in `fit`: runs the epochs as long as the ranks have agreed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank, size
from smddp_tf.functions import allgather_object
from smddp_tf.keras.callbacks.uneven_batches import ERROR
from smddp_tf.keras.fit.epoch_data import EpochData
from smddp_tf.keras.fit.steps_plan import StepsPlan, Supply, listed, uneven_message
from smddp_tf.keras.roles import active_ranks, input_waits
from smddp_tf.keras.roles.step_hooks import StepHooks


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
            raise ValueError(uneven_message(listed([f"{steps} batches" for steps in counts])))
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

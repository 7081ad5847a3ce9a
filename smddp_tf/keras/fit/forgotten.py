"""A forgotten `DistributedOptimizer`: the steps of a `fit` in a job of several ranks reduce nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from smddp_tf.basics import rank, size
from smddp_tf.collectives import graph
from smddp_tf.collectives.functions import were_broadcast
from smddp_tf.collectives.rank_facts import warn_on_rank_zero
from smddp_tf.gradients import reduced_once
from smddp_tf.keras._backend import keras
from smddp_tf.keras.roles import optimizers, step_hooks, wrapping

_checked: weakref.WeakSet[Any] = weakref.WeakSet()


def is_meant_for_all_ranks(model: keras.Model, callbacks: Iterable[Any]) -> bool:
    """Has the user given callbacks that only make sense there, or broadcast the weights?"""
    return any(getattr(each, "for_all_ranks", False) for each in callbacks) or were_broadcast(model.trainable_variables)


class FirstStep(keras.callbacks.Callback):
    """Warns on rank 0 if a model's first step in a `fit` reduces nothing, and has nothing traced that could reduce.

    A step may reduce now and then only, so what counts is what is in its graph. Later `fit`s of the model may trace
    nothing, and are not looked at. Costs the other steps nothing. A rank without data has no first step, and says
    nothing. No rank waits for another: one that trains alone on purpose may do so.

    Args:
        is_meant_for_all_ranks: whether that is known.
    """

    async_safe = True  # Keras need not wait for the metrics of each batch

    def __init__(self, is_meant_for_all_ranks: bool) -> None:
        super().__init__()
        self._is_meant_for_all_ranks = is_meant_for_all_ranks
        self._function: Any = None
        self._run = self._first_call  # one object, to be recognised

    def on_train_batch_begin(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Replaces the train function, for one call."""
        if self._function is None and self.model not in _checked:
            _checked.add(self.model)
            self._function = step_hooks.hooks_of(self.model, "train").intercept(self.model, self._run)

    def _first_call(self, iterator: Any) -> Any:
        step_hooks.hooks_of(self.model, "train").release(self.model, self._run, self._function)
        before = _reductions()
        logs = self._function(iterator)
        if _reductions() == before:
            _warn_of(self.model, self._is_meant_for_all_ranks)
        return logs


def _reductions() -> tuple[int, int, int]:
    """Returns the number of reductions, of collectives in graphs, and how often a tape has reduced (eagerly too)."""
    return graph.reductions(), graph.count(), reduced_once.count()


def _warn_of(model: keras.Model, is_meant_for_all_ranks: bool) -> None:
    found = next(iter(wrapping.optimizers_of(model)), None)
    name = type(optimizers.innermost(found)).__name__ if found is not None else "..."
    why = "although its callbacks or a broadcast of its weights are for training on all ranks"
    if not is_meant_for_all_ranks:
        why = f"in a job of {size()} ranks. If rank {rank()} is to train alone, this is as it should be"
    warn_on_rank_zero(
        f"Every rank trains a model of its own: the first step of `fit` reduced no gradients, {why}. "
        f"Received: an optimizer {name} that is not wrapped. Write: "
        f"model.compile(hvd.DistributedOptimizer(keras.optimizers.{name}(...)), ...)"
    )

"""Puts a guard into `Model.fit` when `smddp_tf.keras` is imported, with no user code; see `guard.py`.

Only `fit` of a model that reduces gradients, on several ranks, is concerned. Of other models the first step is watched
(see `forgotten.py`), and nothing else is changed.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from smddp_tf.basics import is_initialized
from smddp_tf.collectives import graph
from smddp_tf.data.epochs import EpochsOfFit
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras
from smddp_tf.keras.fit.guard import Guard
from smddp_tf.keras.fit.plan import IGNORES_SHUFFLE, TrainerPlan, init_iterator, plan_of_fit
from smddp_tf.keras.fit.stopping import facts_of, name_learning_rate
from smddp_tf.keras.optimizer.auto_wrap import follow_distribution
from smddp_tf.keras.roles import current_distribution, running, wrapping


def guard_fit() -> None:
    """Guards `fit` of Keras's trainer; does nothing the second time.

    Raises:
        RuntimeError: This Keras has no such function, or another one.
    """
    patches.wrap(patch_table.EPOCH_ITERATOR, init_iterator)
    patches.take_over_fit(fit)


def fit(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs Keras's `fit` with a guard where the ranks train together.

    Args:
        plain: Keras's `fit`.
        self: the model.
        args, kwargs: the arguments of `fit`.
    """
    try:
        bound = inspect.signature(plain).bind(self, *args, **kwargs)
    except TypeError:
        return plain(self, *args, **kwargs)  # raises its own error
    if is_initialized() and isinstance(bound.arguments.get("x"), IGNORES_SHUFFLE):
        bound.arguments.setdefault("shuffle", False)  # Keras's default has no effect there, but gives a warning
    bound.apply_defaults()
    if wrapping.model_reduces(self):
        current_distribution.refuse_alone("`fit` of a model that reduces gradients over the ranks")
    follow_distribution(self)
    return _fit(plain, bound, plan_of_fit(bound.arguments))


def _fit(plain_fit: Callable[..., Any], bound: inspect.BoundArguments, plan: TrainerPlan) -> Any:
    if not plan.is_guarded or not plan.reduces:
        # TensorBoard may be on one rank only, and the ranks do not tell each other here.
        on_all = [c for c in plan.callbacks if not (plan.has_others and isinstance(c, keras.callbacks.TensorBoard))]
        name_learning_rate(plan.callbacks, facts_of(on_all).write_rate)
    guard = Guard(plan) if plan.is_guarded else CountedEpochs(plan)
    plan.before, plan.after = [*guard.first, *plan.before], [*plan.after, *guard.last]
    try:
        with _callbacks_around(plan, guard.votes_last), running.within(plans=(*running.here.plans, plan)):
            return plain_fit(*bound.args, **bound.kwargs)
    except Exception as error:
        guard.report(error)
        raise
    finally:
        guard.close()


class CountedEpochs(keras.callbacks.Callback):
    """Replaces a `Guard`: data of `hvd.data.shard` are distributed again in each epoch, if the steps reduce.

    A `fit` that reduces nothing may be this rank's alone, and changes no numbers.

    Attributes:
        first: callbacks before the user's.
        last: callbacks after them, which may have looked at the data.
        votes_last: never; see `Guard`.
    """

    async_safe = True  # Keras need not wait for the metrics of each batch
    votes_last = False

    def __init__(self, plan: TrainerPlan) -> None:
        super().__init__()
        data = self._data = EpochsOfFit(plan.arguments["x"])
        reading = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: data.begin_reading())
        counts = plan.has_others and data.numbers() and plan.arguments["steps_per_epoch"] is None
        self.first, self.last = ([self], [reading]) if counts else ([], [])
        self._numbers = data.agreed_numbers()
        self._requests = graph.reductions() if counts else 0
        self._counts = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._look()
        self._data.begin_epoch()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if batch == 1:
            self._look()

    def report(self, error: BaseException) -> None:
        """Does nothing: no rank waits."""

    def close(self) -> None:
        """The data go on behind the epochs that were made."""
        self._look()
        self._data.end_fit()

    def _look(self) -> None:
        if self.first and not self._counts and graph.reductions() > self._requests:
            self._counts = True
            self._data.begin_fit(self._numbers)


@contextlib.contextmanager
def _callbacks_around(plan: TrainerPlan, waiting: bool) -> Iterator[None]:
    """Inside, the arguments of a `fit` have the plan's callbacks around the user's.

    Args:
        waiting: whether these need each batch to be over; Keras asks that only where it makes the list itself.
    """
    if not plan.has_callback_list:
        plan.arguments["callbacks"] = plan.callbacks
        yield
        return
    given = plan.arguments["callbacks"]
    users, was_async = given.callbacks, getattr(given, "_async_train", None)
    for callback in (*plan.before, *plan.after):
        callback.set_model(plan.model)
        callback.set_params(getattr(given, "params", None))
    given.callbacks = plan.callbacks
    if was_async and waiting:
        given._async_train = False
    try:
        yield
    finally:
        given.callbacks = users
        if was_async is not None:
            given._async_train = was_async

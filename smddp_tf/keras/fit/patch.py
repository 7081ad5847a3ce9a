"""Puts a guard into `Model.fit` when `smddp_tf.keras` is imported, with no user code; see `guard.py`.

Only `fit` of a model that reduces gradients, on several ranks, is concerned. Of other models the first step is watched
(see `forgotten.py`), and nothing else is changed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf._native import loader
from smddp_tf.basics import is_initialized, size
from smddp_tf.data.epochs import EpochsOfFit
from smddp_tf.data.tf_datasets import without_autotune
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras
from smddp_tf.keras.callbacks.rank_zero import on_rank_zero
from smddp_tf.keras.callbacks.throughput import Throughput
from smddp_tf.keras.data_parallel.fitting import callbacks_before, quiet_elsewhere, writing_on_rank_zero
from smddp_tf.keras.data_parallel.global_batches import make_iterator
from smddp_tf.keras.data_parallel.layer_states import refuse_stateful
from smddp_tf.keras.fit.forgotten import watching
from smddp_tf.keras.fit.guard import Guard
from smddp_tf.keras.fit.stopping import counts_samples, facts_of, flat, name_learning_rate
from smddp_tf.keras.optimizer import same_batches
from smddp_tf.keras.optimizer.adopted import follow_distribution
from smddp_tf.keras.roles.current_distribution import current, refuse_alone
from smddp_tf.keras.roles.wrapping import model_reduces
from smddp_tf.monitor import recording

_expecting = threading.local()
_guarded: set[int] = set()  # ids of models that are inside of a guarded `fit`


def guard_fit() -> None:
    """Guards `fit` of Keras's trainer; does nothing the second time.

    Raises:
        RuntimeError: This Keras has no such function, or another one.
    """
    patches.replace(patch_table.EPOCH_ITERATOR, _watched)
    patches.take_over_fit(_guarding)


def _guarding(plain_fit: Any) -> Any:
    signature = inspect.signature(plain_fit)

    @functools.wraps(plain_fit)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError:
            return plain_fit(self, *args, **kwargs)  # says it in its own words
        bound.apply_defaults()
        if model_reduces(self):
            refuse_alone("`fit` of a model that reduces gradients over the ranks")
        follow_distribution(self)
        with _measured(bound.arguments):
            return _fit(plain_fit, bound)

    return fit


def _fit(plain_fit: Any, bound: inspect.BoundArguments) -> Any:
    model = bound.arguments["self"]
    if current() is not None and id(model) not in _guarded:
        with _data_parallel(bound.arguments):
            return _guarded_fit(plain_fit, bound)
    callbacks = flat(bound.arguments["callbacks"])
    if not is_initialized() or size() == 1 or id(model) in _guarded:
        name_learning_rate(callbacks, facts_of(callbacks).write_rate)
        return plain_fit(*bound.args, **bound.kwargs)
    if model_reduces(model):
        return _guarded_fit(plain_fit, bound)
    # TensorBoard may be on one rank only, and the ranks do not tell each other here.
    on_all = [callback for callback in callbacks if not isinstance(callback, keras.callbacks.TensorBoard)]
    name_learning_rate(callbacks, facts_of(on_all).write_rate)
    with _callbacks_around(bound.arguments, [], watching(model, callbacks)):
        if any(counts_samples(callback) for callback in callbacks):
            return _guarded_fit(plain_fit, bound)
        with _counting_epochs(bound.arguments):
            return plain_fit(*bound.args, **bound.kwargs)


@contextlib.contextmanager
def _measured(arguments: dict[str, Any]) -> Iterator[None]:
    """Inside, a `Throughput` measures the `fit`, where the user has given one or a recording runs."""
    given = [callback for callback in flat(arguments["callbacks"]) if isinstance(callback, Throughput)]
    ours = [Throughput()] if recording.current() is not None and not given else []
    throughput = next(iter(given + ours), None)
    if throughput is not None:
        throughput.tensorboards = _one_tensorboard(arguments)
    _expecting.throughput = throughput
    try:
        with _callbacks_around(arguments, ours, []):
            yield
    finally:
        _expecting.throughput = None


def _one_tensorboard(arguments: dict[str, Any]) -> list[Any]:
    """Lets TensorBoards write on rank 0 only, where all ranks train together. Returns those that write here."""
    board, given = keras.callbacks.TensorBoard, arguments["callbacks"]
    together = is_initialized() and size() > 1 and (model_reduces(arguments["self"]) or current() is not None)
    if together and not isinstance(given, keras.callbacks.CallbackList):
        arguments["callbacks"] = [on_rank_zero(c) if isinstance(c, board) else c for c in flat(given)]
    return [callback for callback in flat(arguments["callbacks"]) if isinstance(callback, board)]


@contextlib.contextmanager
def _data_parallel(arguments: dict[str, Any]) -> Iterator[None]:
    """Inside, the arguments of a `fit` are what they have to be under a `keras.distribution`."""
    refuse_stateful(arguments["self"])
    quiet_elsewhere(arguments)
    given = arguments["callbacks"]
    if not isinstance(given, keras.callbacks.CallbackList):
        given = arguments["callbacks"] = writing_on_rank_zero(flat(given))
    with _callbacks_around(arguments, callbacks_before(arguments["self"], flat(given)), []):
        yield


def _watched(plain_init: Any) -> Any:
    """Lets a guarded `fit` see the iterator over its training data, the first that Keras makes there; none is tuned."""

    @functools.wraps(plain_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        owner, _expecting.owner = getattr(_expecting, "owner", None), None
        throughput, _expecting.throughput = getattr(_expecting, "throughput", None), None
        make_iterator(plain_init, self, owner.epochs_ahead() if isinstance(owner, Guard) else 0, *args, **kwargs)
        if is_initialized() and size() > 1 and isinstance(self._distributed_dataset, tf.data.Dataset):
            self._distributed_dataset = without_autotune(self._distributed_dataset)
        for one in filter(None, (owner, throughput)):
            one.epoch_iterator = self

    return __init__


def somebody_expects_iterator() -> bool:
    """Inside `iterator_goes_to`, before there is an iterator?"""
    return getattr(_expecting, "owner", None) is not None


@contextlib.contextmanager
def iterator_goes_to(owner: Any) -> Iterator[None]:
    """Inside, the next iterator over data that Keras makes is also stored as `owner.epoch_iterator`."""
    _expecting.owner = owner
    try:
        yield
    finally:
        _expecting.owner = None


def _guarded_fit(plain_fit: Any, bound: inspect.BoundArguments) -> Any:
    model = bound.arguments["self"]
    guard = Guard(model, bound.arguments)
    with_ours = _callbacks_around(bound.arguments, [guard.first], [guard.last], waiting=guard.votes_last)
    _guarded.add(id(model))
    try:
        with with_ours, iterator_goes_to(guard), same_batches.watching():
            return plain_fit(*bound.args, **bound.kwargs)
    except Exception as error:
        guard.report(error)
        raise
    finally:
        _guarded.discard(id(model))
        guard.close()


@contextlib.contextmanager
def _counting_epochs(arguments: dict[str, Any]) -> Iterator[None]:
    """Inside, data of `shard` are dealt out anew in each epoch also without a guard, if the steps reduce something."""
    data = EpochsOfFit(arguments["x"])
    if not data.numbers() or arguments["steps_per_epoch"] is not None:
        yield
        return
    counting = _Counting(data)
    reading = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: data.begin_reading())
    with _callbacks_around(arguments, [counting], [reading]):  # the user's callbacks may have looked at the data
        try:
            yield
        finally:
            counting.end()


class _Counting(keras.callbacks.Callback):
    """Before the user's callbacks. A `fit` that reduces nothing may be this rank's alone, and changes no numbers."""

    async_safe = True  # Keras need not wait for the metrics of each batch

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._data = data
        self._first = data.agreed_numbers()
        self._requests = _requests()
        self._begun = 0
        self._counts = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._look()
        if self._counts:
            self._data.begin_epoch(self._begun)
        self._begun += 1

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if batch == 1:
            self._look()

    def end(self) -> None:
        self._look()
        if self._counts:
            self._data.end_fit(self._begun)

    def _look(self) -> None:
        if not self._counts and _requests() > self._requests:
            self._counts = True
            self._data.begin_fit(self._first)


def _requests() -> Any:
    stats = loader.core().stats()
    return stats["planned_buckets"] + stats["named_requests"]


@contextlib.contextmanager
def _callbacks_around(
    arguments: dict[str, Any], before: Sequence[Any], after: Sequence[Any], waiting: bool = False
) -> Iterator[None]:
    """Inside, callbacks of ours stand around the user's in the arguments of a `fit`.

    Args:
        waiting: whether ours need each batch to be over, as Keras otherwise finds out when it makes the list itself.
    """
    given = arguments["callbacks"]
    if not isinstance(given, keras.callbacks.CallbackList):
        arguments["callbacks"] = [*before, *flat(given), *after]
        yield
        return
    users, was_async = given.callbacks, getattr(given, "_async_train", None)
    for callback in (*before, *after):
        callback.set_model(arguments["self"])
        callback.set_params(getattr(given, "params", None))
    given.callbacks = [*before, *users, *after]
    if was_async and waiting:
        given._async_train = False
    try:
        yield
    finally:
        given.callbacks = users
        if was_async is not None:
            given._async_train = was_async

"""Puts a guard into `Model.fit` when the first optimizer is wrapped, with no user code; see `fit_guard.py`.

Only `fit` of a model that reduces gradients, on several ranks, is concerned. All others go through unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading

from smddp_tf.basics import is_initialized, size
from smddp_tf.keras import same_batches
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.fit_guard import Guard, counts_samples, flat, reduces

_MARK = "_smddp_guards_fit"
_expecting = threading.local()
_guarded: set[int] = set()  # ids of models that are inside of a guarded `fit`


def guard_fit():
    """Replaces `fit` of Keras's trainer; does nothing the second time.

    Raises:
        NotImplementedError: With the legacy Keras 2, whose `fit` is another.
    """
    needs_keras_3("Looking after the data of `fit`")
    trainer = next(base for base in keras.Model.__mro__ if "fit" in vars(base))
    plain_fit = trainer.fit
    if getattr(plain_fit, _MARK, False):
        return
    signature = inspect.signature(plain_fit)

    @functools.wraps(plain_fit)
    def fit(self, *args, **kwargs):
        if not is_initialized() or size() == 1 or id(self) in _guarded:
            return plain_fit(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        callbacks = flat(bound.arguments.get("callbacks"))
        if not reduces(self) and not any(counts_samples(callback) for callback in callbacks):
            return plain_fit(self, *args, **kwargs)
        return _guarded_fit(plain_fit, bound)

    setattr(fit, _MARK, True)
    trainer.fit = fit
    _watch_iterators(sys.modules[trainer.__module__].TFEpochIterator)


def _watch_iterators(iterator_class):
    """Lets a guarded `fit` see the iterator over its training data: the first that Keras makes there."""
    plain_init = iterator_class.__init__

    @functools.wraps(plain_init)
    def __init__(self, *args, **kwargs):
        plain_init(self, *args, **kwargs)
        owner, _expecting.owner = getattr(_expecting, "owner", None), None
        if owner is not None:
            owner.epoch_iterator = self

    iterator_class.__init__ = __init__


@contextlib.contextmanager
def iterator_goes_to(owner):
    """Inside, the next iterator over data that Keras makes is also stored as `owner.epoch_iterator`."""
    _expecting.owner = owner
    try:
        yield
    finally:
        _expecting.owner = None


def _guarded_fit(plain_fit, bound):
    bound.apply_defaults()
    arguments = bound.arguments
    model = arguments["self"]
    guard = Guard(model, arguments)
    given = arguments["callbacks"]
    if isinstance(given, keras.callbacks.CallbackList):
        restore = _insert(given, guard)
    else:
        restore = None
        arguments["callbacks"] = [guard.first, *flat(given), guard.last]
    _guarded.add(id(model))
    try:
        with iterator_goes_to(guard), same_batches.watching():
            return plain_fit(*bound.args, **bound.kwargs)
    except Exception as error:
        guard.report(error)
        raise
    finally:
        _guarded.discard(id(model))
        guard.close()
        if restore is not None:
            restore()


def _insert(callback_list, guard):
    """Puts the guard into a list that the user made; returns what takes it out."""
    before = list(callback_list.callbacks)
    was_async = getattr(callback_list, "_async_train", None)
    for callback in (guard.first, guard.last):
        callback.set_model(guard.model)
        callback.set_params(getattr(callback_list, "params", None))
    callback_list.callbacks = [guard.first, *before, guard.last]
    if was_async and guard.votes_last:
        callback_list._async_train = False

    def restore():
        callback_list.callbacks = before
        if was_async is not None:
            callback_list._async_train = was_async

    return restore

"""`stop_training` of one rank becomes that of all, at the same step; and how often the ranks ask each other."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator, Set
from typing import Any

import tensorflow as tf

from smddp_tf import ops
from smddp_tf._native.threads import of_thread
from smddp_tf.keras._backend import keras
from smddp_tf.reduce_op import Max

_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
# The batches between two questions where a callback could stop training but, as far as its code tells, does not.
_SELDOM = 16


class Stopping:
    """The agreement of one `fit`.

    A rank that sets `stop_training` goes on until the ranks ask each other the next time. Training stops for all then.

    Args:
        model: what is trained.
        callbacks: this rank's.

    Attributes:
        interval: the batches between two questions; 0: the ranks ask at the end of epochs only. Until
            `agree_on_interval`, what this rank alone needs.
    """

    def __init__(self, model: Any, callbacks: Iterable[Any]) -> None:
        callbacks = list(callbacks)
        self._model = model
        self._agreeing = [callback for callback in callbacks if hasattr(callback, "preempted")]
        self.interval = _shortest(_interval_for(callback) for callback in callbacks)
        self._batches = 0
        self._wanted = False

    def agree_on_interval(self, of_ranks: Iterable[int]) -> None:
        """Takes the shortest of all ranks'."""
        self.interval = _shortest(of_ranks)

    def end_batch(self) -> None:
        """All ranks call it after each batch; `stop_training` is set when all of them stop here."""
        if any(callback.preempted for callback in self._agreeing):
            return  # a PreemptionCheckpoint has stopped all of them
        self._batches += 1
        if self.interval and self._batches % self.interval == 0:
            flag = tf.constant(int(self.wanted()), tf.int32)
            name = of_thread("model.fit (stop_training)")
            self._model.stop_training = bool(ops.allreduce(flag, op=Max, name=name))
        else:
            self._wanted = self.wanted()
            self._model.stop_training = False

    def wanted(self) -> bool:
        """Does this rank want to stop?"""
        return self._wanted or bool(self._model.stop_training)


def looks_at_batches(callback: Any) -> bool:
    """Has it hooks around the batches of training?"""
    base = keras.callbacks.Callback
    return any(
        hook in vars(callback) or getattr(type(callback), hook, None) is not getattr(base, hook)
        for hook in _BATCH_HOOKS
    )


def mentions(callback: Any, names: Set[str]) -> bool:
    """Does its own code, or that of its classes, use an attribute or a string of one of these names?"""
    return any(not names.isdisjoint((*code.co_names, *_strings(code))) for code in _codes_of(callback))


def _strings(code: types.CodeType) -> list[str]:
    return [constant for constant in code.co_consts if isinstance(constant, str)]


def _shortest(intervals: Iterable[int]) -> int:
    return min((interval for interval in intervals if interval), default=0)


def _interval_for(callback: Any) -> int:
    origin = type(callback).__module__.split(".")[0]
    if origin == "smddp_tf" or not looks_at_batches(callback):
        return 0
    if mentions(callback, {"stop_training"}):
        return 1
    runs_only_keras = origin == "keras" and not isinstance(callback, keras.callbacks.LambdaCallback)
    return 0 if runs_only_keras else _SELDOM


def _codes_of(callback: Any) -> Iterator[types.CodeType]:
    """The code of its own functions and of those of its classes, as far as it can be seen."""
    classes = [each for each in type(callback).__mro__ if each not in (keras.callbacks.Callback, object)]
    for members in (vars(callback), *map(vars, classes)):
        for member in members.values():
            if isinstance(member, (types.MethodType, classmethod, staticmethod)):
                member = member.__func__
            if isinstance(member, types.FunctionType):
                yield from _with_inner(inspect.unwrap(member).__code__)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)

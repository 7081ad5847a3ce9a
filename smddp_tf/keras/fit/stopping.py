"""What the callbacks of a `fit` say about it; and `stop_training` of one rank becomes that of all, at the same step."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from smddp_tf import ops
from smddp_tf._native.threads import of_thread
from smddp_tf.basics import rank
from smddp_tf.keras._backend import keras
from smddp_tf.reduce_op import Max

_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
# The batches between two questions where a callback could stop training but, as far as its code tells, does not.
_SELDOM = 16
# A callback that stops training says so nowhere but in its code, as an attribute or a string. To ask after every batch
# for the sake of those that never stop would cost all ranks a small allreduce in each step; see docs/decisions/0031.
_STOP = "stop_training"


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


def _shortest(intervals: Iterable[int]) -> int:
    return min((interval for interval in intervals if interval), default=0)


def _interval_for(callback: Any) -> int:
    origin = type(callback).__module__.split(".")[0]
    if origin == "smddp_tf" or not looks_at_batches(callback):
        return 0
    if any(_STOP in (*code.co_names, *code.co_consts) for code in _codes_of(callback)):
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


# These write the learning rate into the logs, under the name that Keras 3 has for it.
_WRITE_RATE = ("LearningRateScheduler", "ReduceLROnPlateau", "TensorBoard")
# These of Keras change nothing that all ranks must have alike.
_ONLY_READ = (
    "CSVLogger", "History", "ModelCheckpoint", "OrbaxCheckpoint", "ProgbarLogger", "RemoteMonitor", "TensorBoard",
    "TerminateOnNaN",
)  # fmt: skip


class CallbackFacts(NamedTuple):
    """Of one rank's callbacks, or, after `agreed`, of any rank's.

    Attributes:
        for_all_ranks: the names of those of ours that belong on all ranks or on none.
        counts_samples: whether one weighs by samples.
        broadcasts: whether one gives all ranks the same weights.
        restores_weights: whether one may go back to the weights of another epoch.
        write_rate: whether one of Keras's writes the learning rate into the logs.
        set_state: the classes of those that could set the learning rate or weights, on this rank only. After `agreed`,
            whether the ranks differ in that.
    """

    for_all_ranks: Sequence[str]
    counts_samples: bool
    broadcasts: bool
    restores_weights: bool
    write_rate: bool
    set_state: Any


def flat(callbacks: Any) -> list[Any]:
    """The callbacks given to `fit`, in whatever form."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return list(keras.tree.flatten(callbacks or []))


def facts_of(callbacks: Sequence[Any]) -> CallbackFacts:
    """The facts of this rank."""
    writers = tuple(getattr(keras.callbacks, name) for name in _WRITE_RATE)
    return CallbackFacts(
        [_name_of(each) for each in callbacks if getattr(each, "for_all_ranks", False)],
        any(counts_samples(each) for each in callbacks),
        any(getattr(each, "broadcasts_weights", False) for each in callbacks),
        any(getattr(each, "restore_best_weights", False) for each in callbacks),
        any(isinstance(each, writers) for each in callbacks),
        [type(each).__name__ for each in callbacks if _may_set_state(each)],
    )


def agreed(of_ranks: Sequence[CallbackFacts]) -> CallbackFacts:
    """What holds for all ranks.

    Raises:
        ValueError: a callback that talks to the other ranks, or changes what ranks must have alike, is missing on some.
    """
    names = [facts.for_all_ranks for facts in of_ranks]
    for name in sorted({name for of_rank in names for name in of_rank}):
        counts = [of_rank.count(name) for of_rank in names]
        if min(counts) < max(counts):
            holders = [other for other, count in enumerate(counts) if count == max(counts)]
            raise ValueError(
                f"`fit` needs {name} on all ranks or on none. Received: it on rank(s) {holders} only "
                f"(this is rank {rank()}). Put it into the list of callbacks without asking for the rank. "
                "On rank 0 only belong callbacks that write files or print."
            )
    differ = any(facts.set_state != of_ranks[0].set_state for facts in of_ranks)
    any_of = CallbackFacts(names[0], *(any(fact) for fact in zip(*(facts[1:] for facts in of_ranks))))
    return any_of._replace(set_state=differ)


def _may_set_state(callback: Any) -> bool:
    if hasattr(callback, "for_all_ranks") or type(callback) is keras.callbacks.Callback:
        return False
    return type(callback).__name__ not in _ONLY_READ or not type(callback).__module__.startswith("keras.")


def counts_samples(callback: Any) -> bool:
    """Does it weigh by samples?"""
    return getattr(callback, "counts_samples", False)


def name_learning_rate(callbacks: Iterable[Any], as_keras: bool) -> None:
    """Lets ours write the rate under the name that Keras's callbacks use in the same `fit`, or else under Horovod's."""
    for callback in callbacks:
        if hasattr(callback, "rate_name"):
            callback.rate_name = "learning_rate" if as_keras else "lr"


def _name_of(callback: Any) -> str:
    return getattr(callback, "name_of_wrapped", type(callback).__name__)

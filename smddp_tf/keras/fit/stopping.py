"""Compares the callbacks of the ranks in a `fit`, and stops training on all ranks at the same step."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from smddp_tf.basics import cross_rank, is_initialized, rank
from smddp_tf.collectives.rank_facts import any_rank, warn_on_rank_zero
from smddp_tf.keras._backend import keras

_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


class Stopping:
    """Makes `stop_training` equal on all ranks in one `fit`.

    A rank that sets `stop_training` continues until the next allreduce of it. Then training stops on all ranks.

    Args:
        model: the trained model.
        callbacks: this rank's callbacks.

    Attributes:
        asks: whether there is an allreduce after each batch, and not at the end of epochs only: whether this rank needs
            one, until `Guard.agree` has asked all.
    """

    def __init__(self, model: keras.Model, callbacks: Sequence[Any]) -> None:
        self._model = model
        self._preempting = [callback for callback in callbacks if hasattr(callback, "preempted")]
        self.asks = any(map(_may_stop, callbacks))
        self._is_requested = False

    def end_batch(self) -> None:
        """Sets `stop_training` if all ranks stop after this batch. All ranks must call it after each batch."""
        if any(callback.preempted for callback in self._preempting):
            return  # a PreemptionCheckpoint has stopped all of them
        if self.asks:
            self._model.stop_training = any_rank(self.is_requested(), "model.fit (stop_training)")
        else:
            self._is_requested = self.is_requested()
            self._model.stop_training = False

    def is_requested(self) -> bool:
        """Returns whether this rank has set `stop_training`."""
        return self._is_requested or bool(self._model.stop_training)


def looks_at_batches(callback: keras.callbacks.Callback) -> bool:
    """Returns whether a callback has hooks around the batches of training."""
    own, base = type(callback), keras.callbacks.Callback
    return any(hook in vars(callback) or getattr(own, hook, None) is not getattr(base, hook) for hook in _BATCH_HOOKS)


def _may_stop(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback could stop training at a batch. `stops_training = False` declares that it never does."""
    origin = type(callback).__module__.split(".")[0]
    if origin == "smddp_tf" or not looks_at_batches(callback):
        return False
    stops = origin != "keras" or isinstance(callback, (keras.callbacks.LambdaCallback, keras.callbacks.TerminateOnNaN))
    return bool(getattr(callback, "stops_training", stops))


# Callbacks of Keras that write the learning rate into the logs, under the name that Keras 3 uses.
_WRITE_RATE = ("LearningRateScheduler", "ReduceLROnPlateau", "TensorBoard")
# Callbacks of Keras that change nothing that must be equal on all ranks.
_ONLY_READ = (
    "CSVLogger", "History", "ModelCheckpoint", "OrbaxCheckpoint", "ProgbarLogger", "RemoteMonitor", "TensorBoard",
    "TerminateOnNaN",
)  # fmt: skip


# The attribute with the path, of callbacks of Keras that write files. `plan.py` keeps TensorBoard to rank 0.
_WRITES_TO = {"BackupAndRestore": "backup_dir", "CSVLogger": "filename", "ModelCheckpoint": "filepath"}


class CallbackFacts(NamedTuple):
    """Properties of the callbacks of one rank, or, as `agreed` returns them, of all ranks.

    Attributes:
        for_all_ranks: the names of this library's callbacks that must be on all ranks or on none.
        counts_samples: whether a callback weights by samples.
        broadcasts: whether a callback broadcasts the weights.
        restores_weights: whether a callback may restore the weights of another epoch.
        write_rate: whether a callback of Keras writes the learning rate into the logs.
        set_state: the classes of callbacks that could set the learning rate or weights on this rank only. From
            `agreed`: whether the ranks differ in these classes.
        writes: the class that writes a file or folder, by node and absolute path. Empty from `agreed`.
    """

    for_all_ranks: Sequence[str]
    counts_samples: bool
    broadcasts: bool
    restores_weights: bool
    write_rate: bool
    set_state: Any
    writes: Any


def flat(callbacks: object) -> list[Any]:
    """Returns a list of the callbacks that `fit` was called with: a `CallbackList`, a nested structure, or None."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return list(keras.tree.flatten(callbacks or []))


def facts_of(callbacks: Sequence[Any]) -> CallbackFacts:
    """Returns the properties of this rank's callbacks."""
    writers = tuple(getattr(keras.callbacks, name) for name in _WRITE_RATE)
    node = cross_rank() if is_initialized() else 0
    return CallbackFacts(
        [getattr(c, "name_of_wrapped", type(c).__name__) for c in callbacks if getattr(c, "for_all_ranks", False)],
        any(getattr(each, "counts_samples", False) for each in callbacks),
        any(getattr(each, "broadcasts_weights", False) for each in callbacks),
        any(getattr(each, "restore_best_weights", False) for each in callbacks),
        any(isinstance(each, writers) for each in callbacks),
        [type(each).__name__ for each in callbacks if _may_set_state(each)],
        {(node, path): type(each).__name__ for each in callbacks if (path := _path_of(each))},
    )


def agreed(of_ranks: Sequence[CallbackFacts]) -> CallbackFacts:
    """Returns the properties of the callbacks of all ranks.

    Args:
        of_ranks: those of each rank, by rank.

    Raises:
        ValueError: a callback that communicates, or changes what must be equal on all ranks, is missing on some.
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
    _warn_of_shared_files([facts.writes for facts in of_ranks])
    differ = any(facts.set_state != of_ranks[0].set_state for facts in of_ranks)
    any_of = CallbackFacts(names[0], *(any(fact) for fact in zip(*(facts[1:] for facts in of_ranks))))
    return any_of._replace(set_state=differ, writes={})


def _path_of(callback: keras.callbacks.Callback) -> str | None:
    """The absolute path of the file or folder that a callback of Keras writes on its rank; None if there is none."""
    path = getattr(callback, _WRITES_TO.get(type(callback).__name__, ""), None)
    return os.path.abspath(path) if isinstance(path, (str, os.PathLike)) and "://" not in str(path) else None


def _warn_of_shared_files(of_ranks: Sequence[dict[tuple[int, str], str]]) -> None:
    """Warns on rank 0 of files that several ranks of one node write."""
    counts = Counter(key for of_rank in of_ranks for key in of_rank)
    for (node, path), count in counts.items():
        if count > 1:
            name = next(of_rank[node, path] for of_rank in of_ranks if (node, path) in of_rank)
            warn_on_rank_zero(
                f"{count} ranks write the same {name}: {path}. They overwrite each other's, and may break it. "
                f"Write: hvd.callbacks.on_rank_zero(keras.callbacks.{name}(...))"
            )


def _may_set_state(callback: keras.callbacks.Callback) -> bool:
    if hasattr(callback, "for_all_ranks") or type(callback) is keras.callbacks.Callback:
        return False
    return type(callback).__name__ not in _ONLY_READ or not type(callback).__module__.startswith("keras.")


def name_learning_rate(callbacks: Iterable[Any], as_keras: bool) -> None:
    """Sets the name under which this library's callbacks log the learning rate.

    Args:
        callbacks: those of a `fit`.
        as_keras: whether to use the name of Keras's callbacks, and not Horovod's.
    """
    for callback in callbacks:
        if hasattr(callback, "rate_name"):
            callback.rate_name = "learning_rate" if as_keras else "lr"

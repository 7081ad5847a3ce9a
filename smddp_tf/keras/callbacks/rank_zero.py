"""on_rank_zero: callbacks that write files, on one rank only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from smddp_tf.basics import rank, size
from smddp_tf.collectives.rank_facts import objects_of_ranks
from smddp_tf.keras._backend import keras
from smddp_tf.keras.callbacks.broadcast_global_variables import BroadcastGlobalVariablesCallback
from smddp_tf.keras.roles import current_distribution, optimizers
from smddp_tf.keras.saving.sharded_variables import refuse_sharded_variables, together

_ALONE, _TOGETHER = "_smddp_alone", "_smddp_together"  # attributes of hooks that were replaced
# These change how training continues, which must be the same on all ranks.
_FOR_ALL_RANKS = ("EarlyStopping", "LearningRateScheduler", "ReduceLROnPlateau", "TerminateOnNaN")


def on_rank_zero(callback: keras.callbacks.Callback) -> keras.callbacks.Callback:
    """Makes a callback that writes files do so on rank 0 only.

    For `ModelCheckpoint`, `CSVLogger`, `TensorBoard`, `BackupAndRestore` and callbacks of your own that save, log or
    print. Make and wrap it on every rank: on the other ranks the result does nothing.

    `BackupAndRestore` writes on rank 0, and what rank 0 restores when training begins reaches all ranks: variables of
    the model and the optimizer, and the epoch to go on with. So only rank 0 needs to see the files.

    What such a callback does with the model (`evaluate`, `predict`), rank 0 does alone, with all of the data it passes,
    also under a `keras.distribution`. What needs all ranks (`fit`, `hvd.evaluate`) is an error there.

    Where tables are partitioned (`DistributedEmbedding`), the other ranks send their parts when a
    `ModelCheckpoint` saves; `BackupAndRestore` is refused.

    Example:

    >>> callbacks = [
    ...     hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    ...     hvd.callbacks.MetricAverageCallback(),
    ...     hvd.callbacks.on_rank_zero(keras.callbacks.BackupAndRestore("backup")),
    ...     hvd.callbacks.on_rank_zero(keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True)),
    ... ]

    Args:
        callback: a `keras.callbacks.Callback`.

    Returns:
        On rank 0 `callback` itself, elsewhere a callback that does nothing; for a `BackupAndRestore`, on all ranks, a
        callback around it.

    Raises:
        ValueError: If `callback` is one that decides how training continues (`EarlyStopping`, `ReduceLROnPlateau`,
            `LearningRateScheduler`, `TerminateOnNaN`): that must run on all ranks.
        TypeError: If it is no callback.
    """
    if not isinstance(callback, keras.callbacks.Callback):
        raise TypeError(
            "`on_rank_zero` takes a keras.callbacks.Callback. "
            f"Received: {callback!r} (of type {type(callback).__name__}). Wrap the callbacks of a list one by one."
        )
    if isinstance(callback, tuple(getattr(keras.callbacks, name) for name in _FOR_ALL_RANKS)):
        raise ValueError(
            f"{type(callback).__name__} changes how training goes on, so it must run on all ranks, or they part. "
            "Give it to `fit` as it is, after MetricAverageCallback, so that all ranks decide by the same metrics."
        )
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        return _restored_on_all_ranks(callback)
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        return _saved_together(callback)
    return _on_this_rank(callback)


def _on_this_rank(callback: keras.callbacks.Callback) -> keras.callbacks.Callback:
    """On rank 0 the callback, whose hooks use a model without the other ranks; elsewhere one that does nothing."""
    if rank() != 0:
        return keras.callbacks.Callback()
    for name in dir(callback) if size() > 1 else ():
        if name.startswith("on_") and not getattr(getattr(callback, name), "_is_default", False):
            _replace_hook(callback, name, _ALONE, _called_alone)
    return callback


def _called_alone(call: Callable[[], Any]) -> Any:
    with current_distribution.alone():
        return call()


def _replace_hook(callback: keras.callbacks.Callback, name: str, mark: str, run: Callable[..., Any]) -> None:
    """Replaces a hook by `run(call)`, where `call()` is the hook; once, though `fit` may see a callback many times."""
    plain = getattr(callback, name)
    if not hasattr(plain, mark):
        hook = functools.wraps(plain)(lambda *args, **kwargs: run(lambda: plain(*args, **kwargs)))
        vars(hook).pop("_is_default", None)  # by which Keras knows that a callback has no such hook
        setattr(hook, mark, True)
        setattr(callback, name, hook)


def _saved_together(callback: keras.callbacks.ModelCheckpoint) -> keras.callbacks.Callback:
    """Rank 0's `ModelCheckpoint`, and on the other ranks a callback that sends it parts of tables when it saves."""
    on_rank = _on_this_rank(callback)
    hook = "on_epoch_end" if callback.save_freq == "epoch" else "on_train_batch_end"
    _replace_hook(on_rank, hook, _TOGETHER, lambda call: together(on_rank.model, call))
    return on_rank


def _restored_on_all_ranks(callback: keras.callbacks.BackupAndRestore) -> keras.callbacks.Callback:
    """Rank 0's `BackupAndRestore`, and on the other ranks a callback that takes over what it restores."""
    on_rank = _on_this_rank(callback)
    on_rank.for_all_ranks, on_rank.name_of_wrapped = True, type(callback).__name__
    _replace_hook(on_rank, "on_train_begin", _TOGETHER, functools.partial(_restore_together, on_rank))
    return on_rank


def _restore_together(on_rank: keras.callbacks.Callback, restore: Callable[[], Any]) -> None:
    """Calls `restore()` on rank 0, and sends all ranks the state of its model, if there was a backup."""
    model = on_rank.model
    refuse_sharded_variables(model, on_rank.name_of_wrapped)
    error, epoch = _restored(model, restore) if rank() == 0 else (None, None)
    mine = (error and f"{type(error).__name__}: {error}", epoch, model.built)
    of_ranks = objects_of_ranks(mine, "on_rank_zero (restored)")
    text, epoch, _ = of_ranks[0]
    if error is not None:
        raise error
    if text is not None:
        raise RuntimeError(f"Rank 0 could not restore its backup: {text}")
    if epoch is None:
        return
    unbuilt = [other for other, (_, _, built) in enumerate(of_ranks) if not built]
    if unbuilt:
        raise ValueError(
            "BackupAndRestore needs a model that is built before `fit`, on all ranks. "
            f"Received: an unbuilt model on rank(s) {unbuilt} (this is rank {rank()}). Give it an Input."
        )
    sender = BroadcastGlobalVariablesCallback(0, local_variables=optimizers.local_of(model))
    sender.set_model(model)
    sender.on_train_begin()
    model._initial_epoch = epoch


def _restored(model: keras.Model, restore: Callable[[], Any]) -> tuple[Exception | None, int | None]:
    """Returns the error, if any, and the epoch to go on with; None where there was no backup."""
    before, model._initial_epoch = model._initial_epoch, None  # BackupAndRestore sets it when it finds a backup
    try:
        restore()
        return None, model._initial_epoch
    except Exception as error:  # whatever it is, the other ranks are waiting for an answer
        return error, None
    finally:
        model._initial_epoch = before

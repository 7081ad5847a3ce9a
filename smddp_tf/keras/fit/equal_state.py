"""Do the ranks train from the same weights? And makes weights and learning rates equal that callbacks have changed."""

from __future__ import annotations

import hashlib
import weakref
import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf.collectives import functions
from smddp_tf.collectives.layouts import layout_of
from smddp_tf.collectives.rank_facts import numbers_of_ranks, objects_of_ranks, warn_on_rank_zero
from smddp_tf.keras.roles.optimizers import being_accumulated, innermost, local_of, stays_local

_MAX_VALUES = 4096
_NAME = "model.fit (are the weights equal)"
# Models of which rank 0 has said it; and those of which it may have to: a first variable that differs, and a rank.
_warned: weakref.WeakSet[Any] = weakref.WeakSet()
_differ: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def first_difference(model: tf.keras.Model) -> Any:
    """Returns the path of the first variable that differs between ranks and a rank that differs from rank 0; or None.

    Compares a checksum for each variable, over a sample of its values. Equal ranks exchange one number each; only if
    they differ, their lists go to all.
    """
    variables = compared(model)
    mine = [_checksum(variable) for variable in variables]
    digest = int.from_bytes(hashlib.blake2b(repr(mine).encode(), digest_size=8).digest(), "little", signed=True)
    digests = numbers_of_ranks([digest], f"{_NAME} (digests)")
    if (digests == digests[0]).all():
        return None
    of_ranks = objects_of_ranks(([variable.path for variable in variables], mine), f"{_NAME} (which differs)")
    other, index = functions.first_difference([checksums for _, checksums in of_ranks])
    return max(of_ranks[0][0], of_ranks[other][0], key=len)[index], other


def compared(model: tf.keras.Model) -> list[Any]:
    """The variables that reductions keep equal: trainable ones and the optimizer's.

    Statistics, metrics, random states, scales of float8 layers, local variables, parts of an optimizer's state and
    gradients that are still being accumulated are each rank's own.
    """
    optimizer = getattr(model, "optimizer", None)
    local = [*local_of(model), *filter(stays_local, model.trainable_variables)]
    own = set(map(id, [*local, *being_accumulated(optimizer)]))
    variables = [*model.trainable_variables, *(optimizer.variables if optimizer is not None else [])]
    return [variable for variable in variables if id(variable) not in own and layout_of(variable) is None]


def look_at_start(model: tf.keras.Model) -> None:
    """Compares the ranks' weights after the first step of a `fit`. The warning is left for the second step.

    A `fit` of one step trains nothing yet: scripts, such as Horovod's elastic examples, use it to have variables made
    which they then give all ranks. If the model still differs in another `fit`, the warning comes at once.
    """
    differed_before = _differ.pop(model, None) is not None
    if (difference := first_difference(model)) is not None:
        _differ[model] = difference
        if differed_before:
            warn_if_different(model)


def warn_if_different(model: tf.keras.Model) -> None:
    """Warns on rank 0 of what `look` has found, once for each model."""
    difference = _differ.pop(model, None)
    if difference is None or model in _warned:
        return
    _warned.add(model)
    path, other = difference
    warn_on_rank_zero(
        "The ranks do not train the same model: they began with different weights, and averaging gradients keeps "
        f"them apart. The first variable that differs is '{path}', between rank 0 and rank {other}. Pass "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(0) to `fit`, or call hvd.broadcast_variables before."
    )


def _checksum(variable: tf.Variable | tf.keras.Variable) -> Any:
    values = tf.reshape(tf.convert_to_tensor(variable), [-1])
    count = int(values.shape[0])
    sample = values[:: max(1, count // _MAX_VALUES)].numpy() if count else np.empty(0)
    return zlib.crc32(np.ascontiguousarray(sample).tobytes()), count


def rates_of(model: Any) -> list[float]:
    """The learning rate of the model's optimizer, if it is one that can be set; else nothing."""
    return [float(optimizer.learning_rate.numpy()) for optimizer in _optimizers(model)]


def take_rates(model: Any, of_ranks: np.ndarray[Any, Any], when: str) -> bool:
    """Gives this rank rank 0's learning rates, with a warning of rank 0, where the ranks differ.

    Args:
        model: the model that is trained.
        of_ranks: float64 [ranks, rates], what `rates_of` gave on each rank.
        when: "began" or "ended" an epoch, for the warning.

    Returns:
        Whether they differ.
    """
    if (of_ranks == of_ranks[0]).all():
        return False
    warn_on_rank_zero(
        f"The ranks {when} an epoch with different learning rates; all go on with rank 0's. "
        f"Received: {of_ranks.tolist()}, by rank. Give all ranks the same callbacks, and put "
        "hvd.callbacks.MetricAverageCallback() before those that read metrics, such as ReduceLROnPlateau, so "
        "that they decide the same everywhere.",
    )
    for optimizer, rate in zip(_optimizers(model), of_ranks[0]):
        optimizer.learning_rate = rate
    return True


def take_weights(model: Any, warning: str) -> None:
    """Gives all ranks rank 0's weights and optimizer state, with a warning, where they differ; all call it together."""
    if first_difference(model) is not None:
        warn_on_rank_zero(warning)
        own = {id(variable) for variable in local_of(model)}
        shared = {id(v): v for v in (*model.weights, *compared(model))}
        functions.broadcast_variables([v for key, v in shared.items() if key not in own], root_rank=0)


def _optimizers(model: Any) -> list[Any]:
    optimizer = innermost(getattr(model, "optimizer", None))
    return [optimizer] if optimizer is not None and hasattr(optimizer.learning_rate, "assign") else []

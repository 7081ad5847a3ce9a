"""Finds out whether the ranks train from the same weights."""

from __future__ import annotations

import hashlib
import weakref
import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf._warn import warn
from smddp_tf.basics import rank
from smddp_tf.collectives import ops
from smddp_tf.collectives.functions import broadcast_object
from smddp_tf.collectives.layouts import layout_of
from smddp_tf.keras.roles.local_variables import local_of
from smddp_tf.keras.roles.optimizers import being_accumulated, stays_local

_MAX_VALUES = 4096
_NAME = "model.fit (are the weights equal)"
# Models of which rank 0 has said it; and those of which it may have to: a first variable that differs, and a rank.
_warned: weakref.WeakSet[Any] = weakref.WeakSet()
_differ: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def first_difference(model: Any) -> Any:
    """Returns the path of the first variable that differs between ranks and a rank that differs from rank 0; or None.

    Compares a checksum for each variable, over a sample of its values. Equal ranks exchange one number each; only if
    they differ, rank 0's list goes to all.

    """
    variables = compared(model)
    mine = [(variable.path, _checksum(variable)) for variable in variables]
    digest = hashlib.blake2b(repr([checksum for _, checksum in mine]).encode(), digest_size=8).digest()
    if _all_equal(int.from_bytes(digest, "little", signed=True)):
        return None
    ours = broadcast_object(mine, root_rank=0, name=of_thread(f"{_NAME} (rank 0's)"))
    at = _gathered(_first_difference(ours, mine), "which differs")
    other = int(np.argmax(at >= 0))
    named = max(ours, mine, key=len)[at[other]][0] if rank() == other else None
    return broadcast_object(named, root_rank=other, name=of_thread(f"{_NAME} (its name)")), other


def compared(model: Any) -> list[Any]:
    """The variables that reductions keep equal: trainable ones and the optimizer's.

    Statistics, metrics, random states, scales of float8 layers, local variables, parts of an optimizer's state and
    gradients that are still being accumulated are each rank's own.
    """
    optimizer = getattr(model, "optimizer", None)
    own = set(map(id, being_accumulated(optimizer)))
    own |= {id(variable) for variable in local_of(model)}
    own |= {id(variable) for variable in model.trainable_variables if stays_local(variable)}
    variables = [*model.trainable_variables, *(optimizer.variables if optimizer is not None else [])]
    return [variable for variable in variables if id(variable) not in own and layout_of(variable) is None]


def _all_equal(digest: int) -> bool:
    of_ranks = _gathered(digest, "digests")
    return bool((of_ranks == of_ranks[0]).all())


def _gathered(number: int, what: str) -> np.ndarray:
    name = of_thread(f"{_NAME} ({what})")
    return np.asarray(ops.allgather(tf.constant([number], tf.int64), name=name))


def _first_difference(ours: list[Any], mine: list[Any]) -> int:
    """The first place at which the checksums differ or one list ends; -1 when they are equal."""
    for place, (one, other) in enumerate(zip(ours, mine)):
        if one[1] != other[1]:
            return place
    return -1 if len(ours) == len(mine) else min(len(ours), len(mine))


def look(model: Any) -> None:
    """Compares the ranks' weights after the first step of a `fit`. The warning is left for the second step.

    A `fit` of one step trains nothing yet: scripts, such as Horovod's elastic examples, use it to have variables made
    which they then give all ranks. If the model still differs in another `fit`, the warning comes at once.
    """
    differed_before = model in _differ
    difference = first_difference(model)
    _differ.pop(model, None)
    if difference is not None:
        _differ[model] = difference
        if differed_before:
            warn_if_different(model)


def warn_if_different(model: Any) -> None:
    """Warns on rank 0 of what `look` has found, once for each model."""
    difference = _differ.pop(model, None)
    if difference is None or model in _warned:
        return
    _warned.add(model)
    if rank() == 0:
        path, other = difference
        warn(
            "The ranks do not train the same model: they began with different weights, and averaging gradients keeps "
            f"them apart. The first variable that differs is '{path}', between rank 0 and rank {other}. Pass "
            "hvd.callbacks.BroadcastGlobalVariablesCallback(0) to `fit`, or call hvd.broadcast_variables before."
        )


def _checksum(variable: Any) -> Any:
    values = tf.reshape(tf.convert_to_tensor(variable), [-1])
    count = int(values.shape[0])
    sample = values[:: max(1, count // _MAX_VALUES)].numpy() if count else np.empty(0)
    return zlib.crc32(np.ascontiguousarray(sample).tobytes()), count

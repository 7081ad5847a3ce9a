"""Finds out whether the ranks train from the same weights."""

from __future__ import annotations

import weakref
import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf._native.threads import of_thread
from smddp_tf._warn import warn
from smddp_tf.basics import rank
from smddp_tf.functions import allgather_object
from smddp_tf.gradients.local_sources import layout_of
from smddp_tf.keras.optimizer.accumulation import innermost, stays_local
from smddp_tf.keras.optimizer.local_variables import local_of

_MAX_VALUES = 4096
# Models of which rank 0 has said it; and those of which it may have to: a first variable that differs, and a rank.
_warned: weakref.WeakSet[Any] = weakref.WeakSet()
_differ: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def first_difference(model: Any) -> Any:
    """Returns the path of the first variable that differs between ranks and a rank that differs from rank 0; or None.

    One exchange of a checksum for each variable, over a sample of its values.

    Compared are the variables that reductions keep equal: trainable ones and the optimizer's. Statistics, metrics,
    random states, scales of float8 layers, local variables, parts of an optimizer's state and gradients that are still
    being accumulated are each rank's own.
    """
    optimizer = getattr(model, "optimizer", None)
    own = {id(variable) for variable in getattr(innermost(optimizer), "_accumulated_gradients", None) or ()}
    own |= {id(variable) for variable in local_of(model)}
    own |= {id(variable) for variable in model.trainable_variables if stays_local(variable)}
    variables = [*model.trainable_variables, *(optimizer.variables if optimizer is not None else [])]
    variables = [variable for variable in variables if id(variable) not in own and layout_of(variable) is None]
    mine = [(variable.path, _checksum(variable)) for variable in variables]
    everybody = allgather_object(mine, name=of_thread("model.fit (are the weights equal)"))
    for other, theirs in enumerate(everybody):
        for ours, other_s in zip(everybody[0], theirs):
            if ours[1] != other_s[1]:
                return ours[0], other
        if len(theirs) != len(everybody[0]):
            longer = max(theirs, everybody[0], key=len)
            return longer[min(len(theirs), len(everybody[0]))][0], other
    return None


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

"""Collectives over Python values, with the argument orders of `horovod.tensorflow.keras`.

`smddp_tf.allreduce` and its sisters take tensors; these also take numbers, lists and arrays, which is what callbacks
and scripts around `Model.fit` have in hand.
"""

from __future__ import annotations

import tensorflow as tf

from smddp_tf.collectives import graph, ops
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.collectives.tensor_types import TensorLike
from smddp_tf.compression import AnyCompressor, Compression


@graph.no_autograph
def allreduce(
    value: TensorLike,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: AnyCompressor = Compression.none,
) -> tf.Tensor:
    """Reduces a value over all ranks.

    Example:

    >>> correct = hvd.allreduce(correct, name="correct", op=hvd.Sum)

    Args:
        value: Number, list, array or tensor; same shape and type on all ranks.
        name: String, the same on all ranks. Defaults to a name made from the order of the calls.
        average: Boolean, the older way to say `op=Average` (`True`) or `op=Sum` (`False`). Not with `op`.
        prescale_factor: Float, multiplies the value before the reduction. Defaults to `1.0`.
        postscale_factor: Float, multiplies the result. Defaults to `1.0`.
        op: The reduction. Defaults to `hvd.Average`.
        compression: What travels. Defaults to `hvd.Compression.none`.

    Returns:
        A tensor of the shape of `value`, equal on all ranks.
    """
    given = dict(locals())
    return ops.allreduce(tf.convert_to_tensor(given.pop("value")), **given)


def allgather(value: TensorLike, name: str | None = None) -> tf.Tensor:
    """Concatenates the values of all ranks along their first dimension, in rank order.

    Example:

    >>> losses = hvd.allgather([loss], name="losses")  # one entry per rank

    Args:
        value: List, array or tensor with at least one dimension. Only the first dimension may differ between ranks.
        name: String, the same on all ranks. Defaults to a name made from the order of the calls.

    Returns:
        A tensor, equal on all ranks.
    """
    return ops.allgather(tf.convert_to_tensor(value), name=name)


def broadcast(value: TensorLike, root_rank: int, name: str | None = None) -> tf.Tensor:
    """Returns rank `root_rank`'s value on every rank.

    Example:

    >>> first_epoch = int(hvd.broadcast(first_epoch, 0, name="first_epoch"))

    Args:
        value: Number, list, array or tensor; same shape and type on all ranks.
        root_rank: Integer, the rank whose value is sent.
        name: String, the same on all ranks. Defaults to a name made from the order of the calls.

    Returns:
        A tensor of the shape of `value`, equal on all ranks.
    """
    return ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name)


def reducescatter(value: TensorLike, name: str | None = None, op: int = Average) -> tf.Tensor:
    """Reduces a value over all ranks and gives each rank an equal part of its rows, in rank order.

    Example:

    >>> mine = hvd.reducescatter(scores, name="scores", op=hvd.Sum)

    Args:
        value: List, array or tensor with at least one dimension; same shape and type on all ranks.
        name: String, the same on all ranks. Defaults to a name made from the order of the calls.
        op: `hvd.Average` or `hvd.Sum`. Defaults to `hvd.Average`.

    Returns:
        A tensor of this rank's rows; the first ranks have one more where they do not divide.
    """
    return ops.reducescatter(tf.convert_to_tensor(value), op=op, name=name)

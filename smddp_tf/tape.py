"""A gradient tape whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp_tf import _graph
from smddp_tf.compression import Compression
from smddp_tf.reduce_op import Adasum, Average, Sum
from smddp_tf.reduction import GradientReducer

__all__ = ["DistributedGradientTape"]


class DistributedGradientTape(tf.GradientTape):
    """Wraps a `tf.GradientTape` so that `gradient` averages over all ranks.

    Wrap it before or after recording; both tapes share one state. Use it inside a `tf.function` for speed. Every rank
    must ask for the gradients of the same sources. Only `gradient` reduces; `jacobian` and `batch_jacobian` do not.

    Example:
    >>> @tf.function
    ... def train_step(images, labels):
    ...     with tf.GradientTape() as tape:
    ...         loss = loss_fn(labels, model(images, training=True))
    ...     tape = hvd.DistributedGradientTape(tape)
    ...     grads = tape.gradient(loss, model.trainable_variables)
    ...     optimizer.apply_gradients(zip(grads, model.trainable_variables))

    Args:
        gradtape: the `tf.GradientTape` to wrap.
        device_dense: device for the ops on dense gradients. Defaults to TensorFlow's choice.
        device_sparse: the same for `tf.IndexedSlices`.
        compression: how gradients travel: `hvd.Compression.none`, `.fp16`, `.bf16` or a compressor of your own.
            Defaults to `none`.
        sparse_as_dense: bool, turns `tf.IndexedSlices` (of embeddings) into dense gradients first. Defaults to `False`.
        op: `hvd.Average`, `hvd.Sum` or `hvd.Adasum`. Defaults to `hvd.Average`.
        gradient_predivide_factor: float; with Average, gradients are divided by it before they are summed and
            multiplied by it afterwards, which keeps narrow dtypes in range. Defaults to 1.
    """

    # The instance dictionary is the wrapped tape's, so what is ours alone needs slots.
    __slots__ = ("_reducer", "_wrapped")

    def __init__(
        self,
        gradtape: tf.GradientTape,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
    ) -> None:
        _check_tape(gradtape)
        # Not super().__init__(): recording, watched variables and the tape itself are the wrapped tape's.
        self.__dict__ = gradtape.__dict__  # type: ignore[misc]
        self._wrapped = gradtape
        self._reducer = GradientReducer(
            "tape",
            op=op,
            ops=(Average, Sum, Adasum),
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            device_dense=device_dense,
            device_sparse=device_sparse,
        )

    @_graph.as_it_is
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Like `tf.GradientTape.gradient`, then reduced over all ranks. A None stays a None."""
        grads = self._wrapped.gradient(target, sources, output_gradients, unconnected_gradients)
        reduced = self._reducer(tf.nest.flatten(grads), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(grads, reduced)


def _check_tape(gradtape: Any) -> None:
    if isinstance(gradtape, DistributedGradientTape):
        raise ValueError(
            "`gradtape` must be a plain tf.GradientTape. Received a DistributedGradientTape, whose gradients would be "
            "reduced twice. Wrap the tape once."
        )
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(
            f"`gradtape` must be a tf.GradientTape. Received: {gradtape!r} (of type {type(gradtape).__name__})."
        )

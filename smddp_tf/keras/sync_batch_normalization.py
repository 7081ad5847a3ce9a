"""SyncBatchNormalization: batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smddp_tf.collectives import emit, graph
from smddp_tf.collectives.reduce_op import ReduceSpec, Sum
from smddp_tf.keras._backend import LEGACY, keras
from smddp_tf.keras.roles import running


class SyncBatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` whose statistics are those of all ranks' batches together.

    Use it where a rank's own batch is too small for good statistics: every rank normalizes with the mean and variance
    that one process would find in the whole batch, each rank's batch counting by its size, and the moving statistics
    are the same on all ranks. In training one call costs one small allreduce forward and one backward; with
    `training=False` there is no communication. All ranks must call the layer equally often.

    Example:

    >>> model = keras.Sequential([keras.layers.Conv2D(64, 3), hvd.SyncBatchNormalization(), keras.layers.ReLU()])

    A saved model loads in plain Keras too, without this library, with a `BatchNormalization` in its place (only the
    legacy `.h5` format then needs `custom_objects={"smddp_tf>SyncBatchNormalization":
    keras.layers.BatchNormalization}`). For that the layer goes by the name of `BatchNormalization`, in a summary of the
    model and in default names as well.

    Sums are taken of float32 values (or wider ones) around each rank's own mean and joined in float64, so that a large
    mean does not eat the variance (Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance").

    Args:
        fused: Taken for compatibility with Horovod; has no effect. Defaults to `False`.
        kwargs: The arguments of `keras.layers.BatchNormalization`, by name.

    Raises:
        TypeError: If `fused` is neither a Boolean nor `None`, such as an `axis` that was not passed by name.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused is not None and not isinstance(fused, bool):
            raise TypeError(
                "The first argument of SyncBatchNormalization is `fused`, a Boolean, as in Horovod. "
                f"Received: fused={fused!r}. Pass the arguments of BatchNormalization by name, for example axis=-1."
            )
        super().__init__(**kwargs, **({"fused": False} if LEGACY else {}))

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        for variable in self.non_trainable_variables:
            variable.smddp_agreed = True  # a step changes it alike on all ranks, also where a rank had no data

    # How Keras finds the mean and the variance of each channel: the one thing in which `BatchNormalization` changes.
    if LEGACY:

        def _calculate_mean_and_var(self, inputs: Any, reduction_axes: Any, keep_dims: Any, mask: Any = None) -> Any:
            if graph.is_alone():
                return super()._calculate_mean_and_var(inputs, reduction_axes, keep_dims, mask=mask)
            moments = _moments_of_all_ranks(inputs, mask, reduction_axes)
            return [_along_channels(moment, reduction_axes) for moment in moments] if keep_dims else moments

    else:

        def _moments(self, inputs: tf.Tensor, mask: tf.Tensor | None) -> Any:
            if graph.is_alone():
                return super()._moments(inputs, mask)
            return _moments_of_all_ranks(inputs, mask, self._reduction_axes)


def _moments_of_all_ranks(inputs: tf.Tensor, mask: tf.Tensor | None, axes: list[int]) -> list[tf.Tensor]:
    """Mean and variance of each channel over all ranks."""
    totals = _local_totals(inputs, mask, axes)
    active = running.here.active
    if active is not None:  # a rank without data takes part with a batch of zeros, which must not count
        totals = active.receiving(totals * tf.cast(active.is_active(), totals.dtype))
    # Not the layer's name: Keras counts layers per process, and a model that only rank 0 makes would shift it.
    name = graph.tensor_name("sync_batch_normalization", None)
    totals = emit.allreduce_list([totals], ReduceSpec(Sum), name)[0]
    if active is not None:  # the statistics are in every rank's loss, and those count differently
        totals = active.contributing(totals)
    count, total, squares = tf.unstack(totals)
    mean = tf.math.divide_no_nan(total, count)
    variance = tf.maximum(tf.math.divide_no_nan(squares, count) - tf.square(mean), 0.0)
    return [tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)]


def _local_totals(inputs: tf.Tensor, mask: tf.Tensor | None, axes: list[int]) -> tf.Tensor:
    """This rank's number of values, sum and sum of squares: float64, shape (3, channels).

    The values are summed around a shift, their rounded mean, and put back where they were in float64. Neither the
    result nor its gradient depends on the shift s: sum(x) = sum(x - s) + n s, and
    sum(x^2) = sum((x - s)^2) + 2 s sum(x) - n s^2.
    """
    present = None
    if mask is not None:
        present = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))
        inputs = tf.where(present, inputs, tf.zeros_like(inputs))
    count = _count(inputs, present, axes)
    shift = tf.stop_gradient(tf.math.divide_no_nan(tf.cast(tf.reduce_sum(inputs, axes), tf.float64), count))
    narrow = tf.cast(shift, inputs.dtype)
    shift = tf.cast(narrow, tf.float64)
    centred = inputs - _along_channels(narrow, axes)
    if present is not None:
        centred = tf.where(present, centred, tf.zeros_like(centred))
    total = tf.cast(tf.reduce_sum(centred, axes), tf.float64) + count * shift
    squares = tf.cast(tf.reduce_sum(tf.square(centred), axes), tf.float64)
    return tf.stack([count, total, squares + 2.0 * shift * total - count * tf.square(shift)])


def _count(inputs: tf.Tensor, present: tf.Tensor | None, axes: list[int]) -> tf.Tensor:
    """The number of values of each channel."""
    if present is not None:
        return tf.math.count_nonzero(present, axes, dtype=tf.float64)
    shape = tf.shape(inputs, out_type=tf.int64)
    channels = [shape[axis] for axis in range(inputs.shape.rank) if axis not in axes]
    return tf.fill(channels, tf.cast(tf.reduce_prod(tf.gather(shape, axes)), tf.float64))


def _along_channels(vector: tf.Tensor, axes: list[int]) -> tf.Tensor:
    """Brings values of each channel into a shape that broadcasts against the inputs."""
    for axis in sorted(axes):
        vector = tf.expand_dims(vector, axis)
    return vector


def _save_as_batch_normalization(layer: type) -> None:
    """Makes files name Keras's own class, and ours as the registered name, which Keras prefers where it knows it.

    The weights of a layer are stored under the name of its class, so that has to be Keras's as well.
    """
    keras.saving.register_keras_serializable("smddp_tf", "SyncBatchNormalization")(layer)
    plain = keras.layers.BatchNormalization
    # Its real module: Keras refuses a registered name in addition to the public path of one of its own classes.
    layer.__module__, layer.__name__, layer.__qualname__ = plain.__module__, plain.__name__, plain.__qualname__


_save_as_batch_normalization(SyncBatchNormalization)

"""Losses and means of a global batch from those of the ranks' parts: the one module that combines them.

A loss is a quotient: the sum over the rows (weighted, masked) by the number of rows, of rows that count, or by the sum
of the weights. The ranks average gradients and losses by rows, so each rank multiplies its loss by what makes that mean
the quotient of the sums over the ranks. For the default reduction that is 1, and nothing travels; else one number for
each loss. A mean to which a step adds one number counts a batch once, so each rank adds its share of it.

`fit` and `evaluate`, and with them every callback, see the states that steps leave; so no other code combines losses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from smddp_tf.collectives import emit, graph, run_time_values
from smddp_tf.collectives.reduce_op import ReduceSpec, Sum
from smddp_tf.collectives.tensor_types import TensorLike
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras.roles import running

_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


class GlobalBatch:
    """The batch of all ranks of which a step, traced or run eagerly, sees this rank's part.

    Attributes:
        has_equal_parts: whether it is cut into parts of the same shape, one for each rank.
    """

    def __init__(self, rows: tf.Tensor | None = None, is_cut: bool = True) -> None:
        """Remembers the part.

        Args:
            rows: number tensor, those of the part, 0 if it counts nowhere; None where all ranks have equally many.
            is_cut: whether the part was cut out of a batch that all ranks have read, and not brought by the rank.
        """
        self.has_equal_parts = rows is None and is_cut
        self._rows = None if rows is None else tf.cast(rows, tf.float64)
        self._rows_of_all: dict[Any, Any] = {}  # by graph: the tensors of one are unknown in another

    def share(self) -> Any:
        """This rank's part of the rows, a float64 scalar between 0 and 1."""
        if self._rows is None:
            return tf.cast(1, tf.float64) / tf.cast(run_time_values.size(), tf.float64)
        here = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if here not in self._rows_of_all:
            self._rows_of_all[here] = _sum_over_ranks(self._rows)
        return tf.math.divide_no_nan(self._rows, self._rows_of_all[here])

    def factor(self, divisor: tf.Tensor | None = None) -> tf.Tensor:
        """Returns the factor of this rank's loss, float64, with which the mean by rows is that of the global batch.

        Args:
            divisor: what the rank's sum was divided by, in any unit that is the same on all ranks; None for sums.
        """
        if divisor is None:
            return tf.math.divide_no_nan(tf.cast(1, tf.float64), self.share())
        divisor = tf.cast(tf.stop_gradient(divisor), tf.float64)
        if self._rows is not None:
            divisor = tf.where(self._rows > 0, divisor, 0.0)
        return tf.math.divide_no_nan(divisor, _sum_over_ranks(divisor) * self.share())


def _sum_over_ranks(number: tf.Tensor) -> tf.Tensor:
    return emit.allreduce_list([number], ReduceSpec(Sum), graph.tensor_name("keras_distribution_sum", None))[0]


class OwnBatch(NamedTuple):
    """A batch of one rank, while others may make fewer steps: one number counts as often as the batch has rows."""

    rows: Any

    def share(self) -> Any:
        return self.rows


def global_batch() -> GlobalBatch | None:
    """That of the step on this thread which all ranks take together; None outside."""
    batch = running.here.batch
    return batch if isinstance(batch, GlobalBatch) else None


def install() -> None:
    """Lets Keras's losses and means be those of the global batch; does nothing the second time."""
    patches.wrap(patch_table.REDUCED_LOSS, _reduced_loss)
    patches.wrap(patch_table.COMPILED_LOSS, _compiled_loss)
    count_rows()


def count_rows() -> None:
    """Lets Keras's means count one number by the rows of its batch; does nothing the second time."""
    patches.wrap(patch_table.MEAN, _update_state)


def _reduced_loss(
    plain: Callable[..., Any], values: tf.Tensor, sample_weight: Any = None, mask: Any = None, **options: Any
) -> Any:
    """Every loss of Keras, compiled or the user's, is computed here from its values per row."""
    loss = plain(values, sample_weight, mask, **options)
    batch, reduction = global_batch(), options.get("reduction", "sum_over_batch_size")
    if batch is None:
        return loss
    weighted = reduction == "mean_with_sample_weight" and sample_weight is not None
    if reduction == "sum" and running.here.is_compiled_loss and tf.TensorShape(values.shape).rank != 0:
        factor = batch.factor()
    elif reduction in _MEANS and (weighted or mask is not None):
        # Of a mean with a mask the number of values that count.
        options["reduction"] = "sum"
        factor = batch.factor(plain(tf.ones_like(values), sample_weight if weighted else None, mask, **options))
    else:
        return loss
    return loss * tf.cast(factor, loss.dtype)


def _compiled_loss(plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The loss of `compile`, whose gradient is taken as it is: with no reduction that of the sum over all rows."""
    with running.within(is_compiled_loss=True):
        loss = plain(*args, **kwargs)
    batch = global_batch()
    if batch is None or loss is None or loss.shape.rank == 0:
        return loss
    return emit.gradient_times(loss, batch.factor())


def _update_state(
    plain: Callable[..., Any], self: Any, values: TensorLike, sample_weight: TensorLike | None = None
) -> None:
    """A mean of numbers, one for each batch."""
    batch = running.here.batch
    shape = values.shape if hasattr(values, "shape") else np.shape(values)
    if batch is not None and sample_weight is None and tf.TensorShape(shape).rank == 0:
        sample_weight = batch.share()
    plain(self, values, sample_weight)

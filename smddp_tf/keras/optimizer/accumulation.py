"""Several passes for one update: gradients are summed on each rank, and only the sums are reduced over the ranks.

Keras and Horovod each have such a setting, and count differently: `in_keras_window` uses the accumulators of an
optimizer made with `gradient_accumulation_steps`; `Passes` has accumulators of its own, for `backward_passes_per_step`.
A counter that is equal on all ranks decides which pass is the last of an update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.collectives.sparse import replaced
from smddp_tf.collectives.tensor_types import AnyVariable
from smddp_tf.keras._backend import keras
from smddp_tf.keras.roles.optimizers import innermost, iterations_of, stays_local

Apply = Callable[[list[Any]], Any]
Reduce = Callable[[list[Any]], list[Any]]

_NARROW = (tf.float16, tf.bfloat16)  # summed in float32


class Passes:
    """Sums the gradients of `count` calls on this rank before they are reduced: `backward_passes_per_step`.

    The sums are in variables that neither the optimizer nor the model knows: no file, no checkpoint and no broadcast
    contains them. Gradients of 16 bits are summed in float32. The attributes have Horovod's names, for programs that
    look at its `_agg_helper`.

    Args:
        count: int, at least 2.
        average: bool, whether to use the mean of the calls instead of their sum.
    """

    def __init__(self, count: int, average: bool) -> None:
        self.backward_passes_per_step = count
        self.average_aggregated_gradients = average
        self._done: tf.Variable | None = None
        self._sums: dict[int, tuple[Any, tf.Variable]] = {}  # by id of the variable, which the entry keeps alive

    def apply(self, grads: Sequence[Any], variables: Sequence[Any], update: Apply, skip: Callable[[], Any]) -> None:
        """Calls `update(sums)` in every `count`-th call and `skip()` in the others.

        Inside a graph both are traced, as branches of one `tf.cond`: they must not create variables.

        Args:
            grads: gradients or None.
            variables: the variables of the gradients.
            update: applies the sums, in the order of `grads`.
            skip: called where there is no update.
        """
        self._either(grads, variables, _branch(update, self.counter), _branch(skip, self.counter))

    def collect(
        self, grads: Sequence[Any], variables: Sequence[Any], reduce: Callable[[list[Any]], Sequence[Any]]
    ) -> list[Any]:
        """Returns `reduce(sums)` in every `count`-th call and zeros in the others. Call `after_collecting` next.

        Args:
            grads: gradients or None.
            variables: the variables of the gradients.
            reduce: reduces the sums, in the order of `grads`.
        """
        indices = [index for index, grad in enumerate(grads) if grad is not None]

        def finish(sums: list[Any]) -> list[Any]:
            reduced = reduce(sums)
            return [tf.identity(reduced[index]) for index in indices]

        def keep() -> list[Any]:
            return [tf.zeros_like(grads[index]) for index in indices]

        return replaced([None] * len(grads), indices, self._either(grads, variables, finish, keep))

    def _either(
        self, grads: Sequence[Any], variables: Sequence[Any], at_end: Reduce, before: Callable[[], list[Any]]
    ) -> list[Any]:
        grads = [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]
        sums = [None if grad is None else self._sum_for(var, grad.dtype) for grad, var in zip(grads, variables)]
        done = self.counter
        totals = [_combined(grad, total, var) for grad, total, var in zip(grads, sums, variables)]

        def finish() -> list[Any]:
            results = [self._result_of(t, g, v) for t, g, v in zip(totals, grads, variables)]
            for _, accumulator in self._sums.values():
                accumulator.assign(tf.zeros_like(accumulator))
            done.assign(0)
            return [*at_end(results), tf.identity(done)]  # as in `_branch`

        def keep() -> list[Any]:
            for total, accumulator in zip(totals, sums):
                if accumulator is not None:
                    accumulator.assign(total)
            done.assign_add(1)
            return [*before(), tf.identity(done)]

        *results, _ = tf.cond(done >= self.backward_passes_per_step - 1, finish, keep)
        return list(results)

    def after_collecting(self, update: Callable[[], Any], skip: Callable[[], Any]) -> None:
        """Calls `update()` if the last `collect` has returned reduced sums, else `skip()`."""
        tf.cond(tf.equal(self.counter, 0), _branch(update, self.counter), _branch(skip, self.counter))

    @property
    def counter(self) -> tf.Variable:
        """The number of calls since the last update, int64; equal on all ranks."""
        if self._done is None:
            with tf.init_scope():
                self._done = tf.Variable(0, trainable=False, dtype=tf.int64, name="passes_done")
        return self._done

    @property
    def variables(self) -> list[tf.Variable]:
        """The counter and this rank's sums since the last update; [] before the first call."""
        return [] if self._done is None else [self._done, *(total for _, total in self._sums.values())]

    def _sum_for(self, variable: tf.Variable | keras.Variable, dtype: tf.DType) -> tf.Variable:
        if id(variable) not in self._sums:
            with tf.init_scope():
                zeros = tf.zeros(variable.shape, tf.float32 if dtype in _NARROW else dtype)
                self._sums[id(variable)] = variable, tf.Variable(zeros, trainable=False, name="passes_sum")
        return self._sums[id(variable)][1]

    def _result_of(self, total: tf.Tensor, grad: tf.Tensor | None, variable: tf.Variable | keras.Variable) -> Any:
        if grad is None:
            return None
        if self.average_aggregated_gradients and not stays_local(variable):
            total /= self.backward_passes_per_step
        return tf.identity(tf.cast(total, grad.dtype))  # Keras needs tensors of the branch's own graph


def _branch(do: Callable[..., Any], counter: AnyVariable) -> Callable[..., list[tf.Tensor]]:
    """Returns `do` as a branch of `tf.cond`, with a result: XLA keeps the order of ops that have some."""

    def run(*arguments: Any) -> list[tf.Tensor]:
        do(*arguments)
        return [tf.identity(counter)]

    return run


def _combined(grad: tf.Tensor | None, total: tf.Tensor, variable: tf.Variable | keras.Variable) -> Any:
    """The new sum; of gradients that replace their variable (scales of float8) the maximum, as in Keras."""
    if grad is None:
        return None
    grad = tf.cast(grad, total.dtype)
    return tf.maximum(grad, total) if stays_local(variable) else grad + total


def in_keras_window(
    scaled: keras.optimizers.Optimizer, grads: Sequence[Any], variables: Sequence[Any], update: Apply, accumulate: Apply
) -> None:
    """Runs a pass of the `gradient_accumulation_steps` of an optimizer inside a `LossScaleOptimizer`.

    Keras tests every pass for infinities and drops only that pass. With several ranks that would need an exchange in
    each pass. Here the gradients are tested once, after the sum over the passes and the ranks: an infinity in any pass
    of any rank drops all passes of the window, on all ranks. The loss scale changes between windows only.

    Args:
        scaled: the `LossScaleOptimizer`, built.
        grads: scaled gradients or None.
        variables: the variables of the gradients.
        update: called with the scaled sums in the last pass of a window: reduces them, and applies them with the
            `LossScaleOptimizer` if they are finite.
        accumulate: called with the unscaled gradients in the others: the inner optimizer's `apply`.
    """
    iterations, steps = iterations_of(innermost(scaled)), innermost(scaled).gradient_accumulation_steps

    def finish() -> None:
        update([_take_sum(scaled, grad, variable) for grad, variable in zip(grads, variables)])
        # Keras's counter is now at the end of the window or, where an infinity was found, unchanged: then this
        # resets it to the start of the window.
        iterations.assign(iterations // steps * steps)

    def keep() -> None:
        accumulate([_unscaled(scaled, grad, variable) for grad, variable in zip(grads, variables)])

    tf.cond(tf.equal((iterations + 1) % steps, 0), _branch(finish, iterations), _branch(keep, iterations))


def _unscaled(scaled: keras.optimizers.Optimizer, grad: tf.Tensor | None, variable: keras.Variable) -> Any:
    skipped = grad is None or stays_local(variable)
    return grad if skipped else keras.ops.divide(grad, scaled.dynamic_scale)


def _take_sum(scaled: keras.optimizers.Optimizer, grad: tf.Tensor | None, variable: keras.Variable) -> Any:
    """Returns the scaled sum of all passes, and sets Keras's accumulator to zero: Keras adds the two."""
    if grad is None or stays_local(variable):
        return None if grad is None else tf.identity(grad)  # as in `Passes`
    grad, inner = tf.convert_to_tensor(grad), innermost(scaled)
    accumulator = inner._accumulated_gradients[inner._get_variable_index(variable)]
    total = grad + tf.cast(keras.ops.multiply(accumulator, scaled.dynamic_scale), grad.dtype)
    accumulator.assign(tf.zeros(accumulator.shape, accumulator.dtype))
    return total

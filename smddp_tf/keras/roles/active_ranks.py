"""Active ranks, those that still have data: the part of uneven data that lives inside a traced training step.

A rank that has run out of data goes on with batches of zeros, so that every collective of the step finds its partner.
Its gradients enter the reduction as zeros, one more number says how many ranks had real data, and the mean is taken
over those. Where an update has several passes, the ranks agree on every pass, and passes are counted instead of ranks.

Under a `keras.distribution` the same number is that of the rows of this rank's batch, and means are weighted by rows:
they are those over the rows of the global batch. A pass then counts once, however many rows it had, as in one process.
Nothing of this is traced unless `fit` found that ranks may have different numbers of batches (see `uneven.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf import process_sets
from smddp_tf._native.threads import of_thread
from smddp_tf.collectives import emit, graph, ops, run_time_values, sparse
from smddp_tf.collectives.layouts import layout_of
from smddp_tf.collectives.reduce_op import Average, Sum
from smddp_tf.collectives.tensor_types import AnyOptimizer, AnyVariable, Gradient
from smddp_tf.gradients.reducer import GradientReducer
from smddp_tf.process_sets import ProcessSet


class ActiveRanks:
    """Is this rank active in the current step, and how many are? All are variables: any nested function can read them.

    Attributes:
        flag: float64 variable, 1 while this rank is active, that is, has data in the current step, else 0. By rows: the
            number of rows.
        count: float64 variable, the sum of the ranks' flags. Known once the step has reduced something; -1 before.
        needed: float64 variable. A step with a smaller count is skipped: no rank applies an update.
        by_rows: boolean variable, whether flags are numbers of rows.
    """

    def __init__(self) -> None:
        with tf.init_scope():
            self.flag, self.count, self.needed = (_variable(value) for value in (1.0, -1.0, 1.0))
            self.by_rows = tf.Variable(False, trainable=False)
            self._unit = _variable(1.0)  # a usual flag, so that products with gradients are usual

    def begin_step(self, flag: tf.Tensor) -> None:
        knows_usual = tf.convert_to_tensor(self.by_rows) & (self.count > 0.0)
        self._unit.assign(tf.where(knows_usual, self.count / _float64(run_time_values.size()), _float64(1)))
        self.flag.assign(_float64(flag))
        self.count.assign(-1.0)

    def is_active(self) -> tf.Tensor:
        """Boolean scalar: has this rank data?"""
        return tf.convert_to_tensor(self.flag) > 0.5

    def agree_on_pass(self) -> None:
        """Counts the active ranks in a step that may reduce nothing, because its update needs further passes."""
        name = of_thread("model.fit (who has data)")
        self.count.assign(ops.allreduce(tf.convert_to_tensor(self.flag), op=Sum, name=name))

    def masked(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients of `variables` times the rank's weight: zeros while it is not active.

        Those of marked variables stay, as each rank has weighted its contribution: see `local_sources.mark`.
        """
        return self._weighted(grads, variables, self.flag / self._unit, 1.0)

    def masked_in_pass(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """As `masked`, in one of several passes after `agree_on_pass`: by rows, the weight in a mean over this pass."""
        size = _float64(run_time_values.size())
        share = tf.where(self.by_rows, tf.math.divide_no_nan(size, self.count), _float64(1))
        return self._weighted(grads, variables, self.flag * share, self._unit * share)

    def flag_of_pass(self) -> tf.Tensor:
        """Returns the number that a pass adds to the window; see `Window`."""
        return tf.where(self.by_rows, _float64(1), self.flag)

    def contributing(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns `tensor`, whose gradient goes to another rank: it is multiplied by this rank's weight."""
        return emit.gradient_times(tensor, self.flag / self._unit)

    def receiving(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns `tensor`, whose gradient comes from all ranks' `contributing`: `masked` will not weight it again."""
        return emit.gradient_times(tensor, tf.math.divide_no_nan(tf.convert_to_tensor(self._unit), self.flag))

    def reduced(
        self,
        reducer: GradientReducer,
        grads: Sequence[Any],
        variables: Sequence[Any],
        op: int,
        process_set: ProcessSet,
        window: Window | None = None,
        complete: Sequence[Any] = (),
    ) -> list[Any]:
        """Returns the gradients reduced over the active ranks: `reducer(grads, variables)`, corrected; then `complete`.

        Exact where the others are concerned: zeros add nothing to a sum, and a mean over all ranks times
        `size / count` is the mean over `count` ranks, up to one rounding. By rows a sum is `size` times the mean.

        Args:
            grads: masked.
            process_set: the ranks over which `reducer` reduces.
            window: the `Window` in which `grads` were added up; None for those of one step.
            complete: gradients of marked variables (`local_sources.mark`), divided by the number of ranks.
        """
        active, passes = (self.flag, self._unit) if window is None else window.close()
        active, passes, size = _float64(active), _float64(passes), _size_of(process_set)
        if getattr(reducer, "keeps_float32", False):  # it costs nothing among the gradients
            narrow = tf.cast(active, tf.float32)
            *reduced, share = reducer([*grads, narrow], [*variables, narrow])
            count = tf.round(_float64(share) * size if op == Average else _float64(share))
        else:
            count = ops.allreduce(active, op=Sum, process_set=process_set) if process_set.included() else active
            reduced = reducer(grads, variables)
        if window is None:
            # Of a process set as many of all ranks; of all ranks the number itself, which is times 1.0.
            self.count.assign(count * (_float64(run_time_values.size()) / size))
        factor = tf.math.divide_no_nan(size * passes, count)
        if op != Average:
            factor = tf.where(self.by_rows, factor, _float64(1))
        return [_scaled(grad, factor) for grad in (*reduced, *complete)]

    def _weighted(self, grads: Sequence[Any], variables: Sequence[Any], weight: Any, of_marked: Any) -> list[Any]:
        return [
            self._masked(weight, grad) if layout_of(variable) is None else _scaled(grad, of_marked)
            for grad, variable in zip(grads, variables)
        ]

    def _masked(self, weight: tf.Tensor, grad: Gradient) -> Gradient:
        if grad is None:
            return None
        if not isinstance(grad, tf.IndexedSlices):
            return _times(grad, weight)
        values, indices = _times(grad.values, weight), grad.indices
        if not graph.compiling():  # where shapes must be known
            # No rows at all: optimizers that update only the rows they get would touch those of the zeros.
            kept = tf.where(self.is_active(), tf.shape(indices)[0], 0)
            values, indices = values[:kept], indices[:kept]
        return tf.IndexedSlices(values, indices, grad.dense_shape)

    def is_valid(self) -> tf.Tensor:
        """Boolean scalar: enough ranks are active in this step."""
        return tf.convert_to_tensor(self.count) >= tf.convert_to_tensor(self.needed)


class Window:
    """The passes of one update that is not complete yet, and in how many of them this rank was active."""

    def __init__(self) -> None:
        with tf.init_scope():
            self._counts = tf.Variable(tf.zeros([2], tf.float64), trainable=False)  # active passes, and passes

    def add(self, flag: tf.Tensor) -> None:
        self._counts.assign_add(tf.stack([flag, _float64(1)]))

    def close(self) -> tuple[Any, Any]:
        """Returns (active passes, passes), float64 scalars, and begins the next window."""
        active, passes = tf.unstack(tf.identity(self._counts))
        self._counts.assign(tf.zeros_like(self._counts))
        return active, passes


@functools.cache
def process_wide() -> ActiveRanks:
    """The one `ActiveRanks`: a step that was traced with it, in whatever function, stays right in a later `fit`."""
    return ActiveRanks()


def unless_skipped(
    active: ActiveRanks, optimizer: AnyOptimizer, variables: Sequence[AnyVariable] | None, update: Callable[[], object]
) -> tf.Variable:
    """Runs `update`, which applies reduced gradients, unless the step turned out to be one to skip."""
    if not optimizer.built and variables is not None:
        with tf.init_scope():
            optimizer.build(list(variables))

    def run() -> bool:
        update()
        return True

    tf.cond(active.is_valid(), run, lambda: True)
    return optimizer.iterations


def _size_of(process_set: ProcessSet) -> tf.Tensor:
    """The number of ranks of the set, as float64; 1 outside of it, where nothing is reduced."""
    if not process_set.included():
        return _float64(1)
    with process_sets.scope(process_sets.id_of(process_set)):
        return _float64(run_time_values.size())


def _variable(value: float) -> tf.Variable:
    return tf.Variable(value, dtype=tf.float64, trainable=False)


def _float64(number: tf.Tensor | tf.Variable | float) -> tf.Tensor:
    """Float64 throughout, as a quotient that float32 rounds is an error of 1e-8 in gradients of float64."""
    return tf.cast(number, tf.float64)


def _times(tensor: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Zeros where the weight is 0, also for what is not finite."""
    return tf.math.multiply_no_nan(tensor, tf.cast(weight, tensor.dtype))


def _scaled(grad: Gradient, factor: tf.Tensor | float) -> Any:
    return sparse.mapped(lambda values: values * tf.cast(factor, values.dtype), grad)

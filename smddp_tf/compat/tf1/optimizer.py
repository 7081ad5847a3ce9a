"""`hvd.DistributedOptimizer` of `horovod.tensorflow`: for optimizers of Keras and of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.collectives import graph
from smddp_tf.collectives.reduce_op import Adasum, Average, Sum
from smddp_tf.collectives.sparse import replaced
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.gradients import local_sources, reducer
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.keras.optimizer import distributed as of_keras
from smddp_tf.keras.roles.wrapping import named_as_horovod
from smddp_tf.process_sets import ProcessSet, global_process_set


@graph.no_autograph
def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    partition_state: str | int | None = None,
    shard: str | int | None = None,
) -> Any:
    """`smddp_tf.keras.DistributedOptimizer` with the argument order of `horovod.tensorflow`.

    It wraps optimizers of Keras. An optimizer of TensorFlow 1 (`tf.compat.v1.train.*`) is wrapped in another optimizer,
    which reduces in `compute_gradients`, and so in `minimize`.

    Args:
        optimizer: the optimizer to wrap; for the others see `smddp_tf.keras.DistributedOptimizer`.
        use_locking: bool, the setting of the wrapper of a TensorFlow 1 optimizer; else without effect.

    Returns:
        The wrapped optimizer.

    Raises:
        ValueError: as of `smddp_tf.keras.DistributedOptimizer`; for an optimizer of TensorFlow 1 also if
            `backward_passes_per_step` is more than 1 in eager mode.
    """
    given = dict(locals())
    if isinstance(optimizer, tf.compat.v1.train.Optimizer) and partition_state is None and shard is None:
        optimizer_class = named_as_horovod(DistributedV1Optimizer, "horovod.tensorflow", "_DistributedOptimizer")
        return optimizer_class(optimizer, use_locking, ReduceOptions.of(given))
    del given["use_locking"]
    return of_keras.DistributedOptimizer(**given)


class DistributedV1Optimizer(tf.compat.v1.train.Optimizer):
    """Reduces in `compute_gradients`; calls the wrapped optimizer for all else.

    Works in graphs with a session, in `tf.function` and eagerly. `minimize` calls `compute_gradients`; so must a script
    with gradients of its own, or reduce them with `hvd.DistributedGradientTape`.

    Args:
        optimizer: the `tf.compat.v1.train.Optimizer`.
        use_locking: see `tf.compat.v1.train.Optimizer`.
        options: how it reduces; several passes for one update in graphs with a session only. Its name is "Distributed"
            and the name of the class unless one is given.
    """

    def __init__(self, optimizer: tf.compat.v1.train.Optimizer, use_locking: bool, options: ReduceOptions) -> None:
        name = options.name or f"Distributed{type(optimizer).__name__}"
        passes, average = options.backward_passes_per_step, options.average_aggregated_gradients
        super().__init__(name=name, use_locking=use_locking)
        if passes > 1 and tf.executing_eagerly():
            raise ValueError(
                "`backward_passes_per_step` of a TensorFlow 1 optimizer needs a graph with a session. "
                f"Received: backward_passes_per_step={passes} in eager mode. Use an optimizer of `keras.optimizers`."
            )
        if average and options.op == Adasum:
            raise ValueError(
                "`average_aggregated_gradients` has no meaning for hvd.Adasum, which does not depend on the length of "
                "what it adds. Received: average_aggregated_gradients=True and op=hvd.Adasum. Leave one of them out."
            )
        self._optimizer, self._options = optimizer, options
        self._local = local_sources.LocalSources(options)
        self._reducer = reducer.GradientReducer(name, options, (Average, Sum, Adasum))
        self._passes = _Passes(passes, average) if passes > 1 else None

    def register_local_var(self, var: tf.Variable) -> None:
        """Keeps the gradient of a variable on this rank. Call it before the gradients are computed."""
        self._local.add(var)

    @graph.no_autograph
    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As of the optimizer inside, then reduced over all ranks. A None stays a None."""
        pairs = list(self._optimizer.compute_gradients(*args, **kwargs))
        grads, variables = [grad for grad, _ in pairs], [variable for _, variable in pairs]
        if self._passes is None:
            return list(zip(self._reduced(grads, variables), variables))
        dense = self._options.dense(grads, variables)
        return list(zip(self._passes.add(dense, lambda sums: self._reduced(sums, variables)), variables))

    @graph.no_autograph
    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """As of the optimizer inside; with several passes for one update, in the last of them only.

        The global step counts every pass.
        """
        pairs = list(grads_and_vars)
        if self._passes is None:
            return self._optimizer.apply_gradients(pairs, global_step, name)
        self._optimizer._create_slots([variable for grad, variable in pairs if grad is not None])

        def skip() -> Any:
            return tf.no_op() if global_step is None else tf.group(tf.compat.v1.assign_add(global_step, 1))

        def update() -> Any:
            return tf.group(self._optimizer.apply_gradients(pairs, global_step, name))

        return tf.cond(self._passes.complete, update, skip)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As of the optimizer inside."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """As of the optimizer inside."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """As of the optimizer inside."""
        return self._optimizer.variables(*args, **kwargs)

    def _reduced(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        return self._local.reduce_others(self._reducer, grads, variables)


class _Passes:
    """Adds up the gradients of several runs of a graph. Its variables are global variables: they need initialising."""

    def __init__(self, count: int, average: bool) -> None:
        self._count = count
        self._average = average
        self.complete: Any = None  # whether a run completes the passes

    def add(self, grads: Sequence[Any], reduce: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Returns the reduced sums in every `count`-th run, and in the others zeros, which must not be applied."""
        missing, present = [None] * len(grads), [index for index, grad in enumerate(grads) if grad is not None]
        sums = [_variable(tf.zeros(grads[index].shape, grads[index].dtype)) for index in present]
        done = _variable(tf.zeros([], tf.int64))
        added = [kept.assign_add(grads[index]) for kept, index in zip(sums, present)]
        with tf.control_dependencies([*added, done.assign_add(1)]):
            self.complete = tf.equal(done.read_value() % self._count, 0)

        def finish() -> list[tf.Tensor]:
            totals = [kept.read_value() / self._count if self._average else kept.read_value() for kept in sums]
            reduced = [grad for grad in reduce(replaced(missing, present, totals)) if grad is not None]
            with tf.control_dependencies(reduced):
                emptied = [kept.assign(tf.zeros_like(kept)) for kept in sums]
            with tf.control_dependencies(emptied):
                return [tf.identity(grad) for grad in reduced]

        results = tf.cond(self.complete, finish, lambda: [tf.zeros_like(grads[index]) for index in present])
        return replaced(missing, present, results)


def _variable(zeros: tf.Tensor) -> Any:
    return tf.compat.v1.Variable(zeros, trainable=False, use_resource=True, name="passes_sum")

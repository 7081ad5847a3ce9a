"""Under `keras.distribution` optimizers reduce their gradients without being wrapped by the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras
from smddp_tf.keras.optimizer.optimizer_reducer import is_updating
from smddp_tf.keras.optimizer.reducing import attach
from smddp_tf.keras.roles.current_distribution import current
from smddp_tf.keras.roles.optimizers import innermost
from smddp_tf.keras.roles.step_hooks import hooks_of
from smddp_tf.keras.roles.wrapping import detach_reducer, optimizers_of, reducer_on, reduces


def follow_distribution(model: keras.Model) -> None:
    """Makes the optimizers of a model reduce under a distribution, and undoes that without a distribution.

    Optimizers that the user has wrapped are not changed.

    Raises:
        ValueError: without the distribution, an optimizer has state that is sharded for it.
    """
    for optimizer in optimizers_of(model):
        reducer: Any = None if wrap_for_distribution(optimizer) else reducer_on(optimizer)
        if current() is None and getattr(reducer, "of_distribution", False):
            if reducer.settings.partition_state is not None:
                raise ValueError(
                    "The optimizer's state is partitioned over the ranks by DataParallel(partition_state=...), so it "
                    "cannot be without that distribution. Save the model on all ranks, and load it after "
                    "set_distribution(None)."
                )
            for each in {id(o): o for o in (optimizer, innermost(optimizer))}.values():
                detach_reducer(each)
            hooks_of(model, "train").drop_function(model)


def wrap_for_distribution(optimizer: keras.optimizers.Optimizer) -> bool:
    """Makes an optimizer reduce if there is a distribution and neither it nor an outer optimizer reduces.

    Returns:
        Whether the optimizer was changed.
    """
    if current() is None or reduces(optimizer) or is_updating():
        return False
    partition = getattr(current(), "partition_state", None)
    reducer = attach(optimizer, ReduceOptions(partition_state=partition, sparse_as_dense=partition is not None))
    reducer.of_distribution = reducer.is_inherited = True  # `is_inherited`: the user may still wrap it
    return True


def wrap_at_first_step() -> None:
    """Makes `train_on_batch` and user-defined training loops reduce as `fit` does. Later calls do nothing."""
    patches.wrap(patch_table.APPLY, _apply, of=keras.optimizers.Optimizer)


def _apply(
    plain: Callable[..., Any], self: Any, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None
) -> Any:
    own_class = type(self)
    if not wrap_for_distribution(self):
        return plain(self, grads, trainable_variables)
    if own_class.apply is not keras.optimizers.Optimizer.apply:
        raise ValueError(
            f"The optimizer class {own_class.__name__} has an `apply` of its own, so it must reduce before that. "
            "Call smddp_tf.keras.DistributedOptimizer(optimizer) before its first step, or train with model.fit."
        )
    return self.apply(grads, trainable_variables)

"""Methods of Horovod's wrapped optimizers that programs call, and replace on one optimizer object by their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from smddp_tf.keras.optimizer.optimizer_reducer import OptimizerReducer
from smddp_tf.keras.optimizer.pipeline import reducing_methods


def methods_for(optimizer_class: Any, reducer_of: Callable[[Any], OptimizerReducer]) -> dict[str, Any]:
    """Returns the methods for the wrapped class of a user's class.

    Args:
        optimizer_class: the user's class.
        reducer_of: gives the reducer of an optimizer.
    """

    def register_local_var(self: Any, var: Any) -> None:
        """Keeps the gradients of a variable on this rank. Call it before training, or before `_allreduce` reduces."""
        reducer_of(self).local.add(var)

    return {
        **reducing_methods(reducer_of),
        "_agg_helper": property(lambda self: reducer_of(self).passes),
        "register_local_var": register_local_var,
        "_compute_gradients": own_gradients,  # Keras 2 has its own
    }


def own_gradients(
    self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: tf.GradientTape | None = None
) -> list[tuple[Any, Any]]:
    """Returns this rank's own gradients, in pairs with the variables. What applies them reduces them.

    Args:
        loss: a tensor that `tape` has recorded, or a function that returns the loss.
        var_list: list of variables, or a function that returns it.
        grad_loss: what the gradients are multiplied by.
        tape: needed where `loss` is a tensor.

    Raises:
        ValueError: `loss` is a tensor, and there is no tape.
    """
    if callable(loss):
        with tf.GradientTape() as tape:
            loss = loss()
    elif tape is None:
        raise ValueError("`tape` must be the tf.GradientTape that has recorded `loss`, where `loss` is a tensor.")
    variables = list(var_list() if callable(var_list) else var_list)
    return list(zip(tape.gradient(loss, variables, grad_loss), variables))

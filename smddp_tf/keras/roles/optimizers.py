"""Properties of any Keras optimizer, wrapped or not."""

from __future__ import annotations

from smddp_tf.collectives.tensor_types import AnyOptimizer, AnyVariable
from smddp_tf.gradients.local_sources import stays_local as stays_local


def innermost(optimizer: AnyOptimizer) -> AnyOptimizer:
    """The optimizer that updates the weights: what a `LossScaleOptimizer` is around, or `optimizer` itself."""
    while hasattr(optimizer, "inner_optimizer"):  # of Keras 2 and 3 alike
        optimizer = optimizer.inner_optimizer
    return optimizer


def being_accumulated(optimizer: AnyOptimizer) -> list[AnyVariable]:
    """The variables of `gradient_accumulation_steps`: sums of gradients, which are each rank's own."""
    return list(getattr(innermost(optimizer), "_accumulated_gradients", None) or ())


def iterations_of(optimizer: AnyOptimizer) -> AnyVariable:
    """The variable that counts an optimizer's calls; since Keras 3.5 `iterations` may be a quotient of it."""
    counter = getattr(optimizer, "_iterations", None)
    return optimizer.iterations if counter is None else counter

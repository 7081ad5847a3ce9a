"""Properties of any Keras optimizer, wrapped or not, and the variables that it updates on one rank only."""

from __future__ import annotations

from collections.abc import Iterable

from smddp_tf.collectives.tensor_types import AnyOptimizer, AnyVariable
from smddp_tf.gradients.local_sources import LocalSources
from smddp_tf.gradients.local_sources import stays_local as stays_local
from smddp_tf.keras._backend import LEGACY, keras
from smddp_tf.keras.roles.wrapping import reducer_on


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


def local_of(model: keras.Model) -> list[AnyVariable]:
    """Returns the local variables of a model and their optimizer slots."""
    optimizer = getattr(model, "optimizer", None)
    reducer = None if optimizer is None else reducer_on(innermost(optimizer))
    variables = list(model.trainable_variables)
    local_sources = LocalSources() if reducer is None else reducer.local
    local = [variables[index] for index in local_sources.indices(variables)]
    return [*local, *slots_of(optimizer, local)]


def slots_of(optimizer: AnyOptimizer | None, variables: Iterable[AnyVariable]) -> list[AnyVariable]:
    """Returns the slots of a Keras 3 optimizer for `variables`, such as momenta; [] for other optimizers.

    The slots are the attributes that are lists with one element for each trainable variable.
    """
    ids = {id(variable) for variable in variables}
    if LEGACY or optimizer is None or not ids:
        return []
    inner = innermost(optimizer)
    trained = list(getattr(inner, "_trainable_variables", ()))
    indices = [index for index, variable in enumerate(trained) if id(variable) in ids]
    lists = [value for value in vars(inner).values() if isinstance(value, (list, tuple)) and len(value) == len(trained)]
    return [value[index] for value in lists for index in indices if value[index] is not None]

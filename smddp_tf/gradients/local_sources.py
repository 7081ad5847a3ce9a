"""Variables that belong to one rank: their gradients are not sent. For tables that are too large for every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from smddp_tf import process_sets
from smddp_tf.collectives import emit, graph, run_time_values, sparse
from smddp_tf.collectives.layouts import identity, layout_of
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.gradients.options import DEFAULTS, ReduceOptions


class KeptGradients(NamedTuple):
    """The indices, in a list of gradients, of those that stay on this rank.

    Attributes:
        local: those of local variables.
        complete: those of variables that `layouts.mark` has marked: their gradients contain what all ranks contribute.
        all: both, and those of the scales of float8 layers, whose "gradients" are new values.
    """

    local: list[int]
    complete: list[int]
    all: set[int]


class LocalSources:
    """Holds the variables (or tensors) whose gradients stay on this rank, and scales those gradients.

    A mean over the ranks divides each rank's loss by their number. A gradient that stays must be divided too, or local
    variables would learn faster than shared ones.

    Args:
        options: `scale_local_gradients` divides local gradients by the number of ranks; `process_set` has the ranks
            that share the other gradients.
    """

    def __init__(self, options: ReduceOptions = DEFAULTS) -> None:
        self._process_set = process_sets.checked(options.process_set)
        self._layers: list[Any] = []
        self._options = options
        self._registered: dict[int, Any] = {}  # by id

    def add(self, source: object) -> None:
        """Makes a variable local."""
        self._registered[id(source)] = source

    def add_layers(self, layers: Iterable[Any]) -> None:
        """Makes all trainable weights of Keras layers local, also those that they make later."""
        self._layers.extend(layers)

    def add_those_of(self, other: LocalSources) -> None:
        """Adds the local variables and layers of another object."""
        self._registered.update(other._registered)
        self._layers.extend(other._layers)

    def indices(self, sources: Sequence[Any]) -> set[int]:
        """The indices of the `sources` that are local."""
        local = {id(identity(source)) for source in self._registered.values()}
        local.update(id(identity(weight)) for layer in self._layers for weight in layer.trainable_weights)
        found = {index for index, source in enumerate(sources) if id(identity(source)) in local or layout_of(source)}
        op, scale = self._options.op, self._options.scale_local_gradients
        process_set = self._process_set.process_set_id
        is_mean = op == Average and scale and process_set == 0
        if not is_mean and any(getattr(layout_of(sources[index]), "asked", None) is not None for index in found):
            raise NotImplementedError(
                "Gradients of weights in parts (hvd.partition_weights, ModelParallel) are averaged over all ranks. "
                f"Received: op={op!r}, scale_local_gradients={scale}, process_set number {process_set}. Leave these "
                "out."
            )
        return found

    def kept(self, variables: Sequence[Any]) -> KeptGradients:
        """Returns which gradients of a Keras optimizer's `variables` stay on this rank, and why."""
        scales = [index for index, variable in enumerate(variables) if stays_local(variable)]
        kept = sorted(self.indices(variables))
        complete = [index for index in kept if layout_of(variables[index]) is not None]
        return KeptGradients([index for index in kept if index not in complete], complete, {*kept, *scales})

    def ranks(self) -> int:
        """Returns the number of ranks that share gradients with this one, itself included."""
        return (self._process_set.size() or 1) if self._process_set.included() else 1

    def reduce_others(
        self, reduce: Callable[[list[Any], Sequence[Any]], list[Any]], grads: Sequence[Any], sources: Sequence[Any]
    ) -> list[Any]:
        """Returns `reduce(grads, sources)` for the sources that are not local, and the local gradients, scaled.

        Args:
            reduce: gets the gradients and the sources that are not local.
            grads: tensors, `tf.IndexedSlices` or None.
            sources: what they are the gradients of.
        """
        kept = self.indices(sources)
        local = sorted(kept)
        shared = [index for index in range(len(grads)) if index not in kept]
        reduced = reduce([grads[index] for index in shared], [sources[index] for index in shared])
        return sparse.replaced(grads, (*shared, *local), (*reduced, *self.divided([grads[index] for index in local])))

    def divided(self, grads: Sequence[Any]) -> list[Any]:
        """Returns local gradients as they are applied: divided by the number of ranks, if that was asked for.

        Args:
            grads: tensors, `tf.IndexedSlices` or None.
        """
        if not grads or not self._options.scale_local_gradients or not self._process_set.included():
            return list(grads)
        with process_sets.scope(process_sets.id_of(self._process_set)):
            ranks = 1 if graph.is_alone() else run_time_values.size()
        return [sparse.mapped(lambda values: emit.divided(values, ranks), grad) for grad in grads]


def stays_local(variable: object) -> bool:
    """True for the scales of float8 layers: their "gradients" are new values that describe one rank's own numbers."""
    return bool(getattr(variable, "overwrite_with_gradient", False))


def layers_in(local_layers: Any) -> list[Any]:
    """The argument `local_layers` as a list.

    Raises:
        ValueError: it is neither a Keras layer, nor a list of them, nor None.
    """
    if local_layers is None:
        return []
    is_one = _is_layer(local_layers) or isinstance(local_layers, (str, bytes)) or not isinstance(local_layers, Iterable)
    layers = [local_layers] if is_one else list(local_layers)
    for layer in layers:
        if not _is_layer(layer):
            raise ValueError(
                "`local_layers` must be a Keras layer or a list of Keras layers. "
                f"Received: {layer!r} (of type {type(layer).__name__})."
            )
    return layers


def _is_layer(candidate: object) -> bool:
    """A layer or model of Keras 2 or 3: nothing else has all of these, and Keras need not be imported to ask."""
    return all(hasattr(candidate, name) for name in ("trainable_weights", "call", "get_config"))

"""A gradient tape whose gradients are reduced over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from smddp_tf.collectives import graph
from smddp_tf.collectives.reduce_op import Adasum, Average, Sum
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.gradients import local_sources, reduced_once, reducer
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.process_sets import ProcessSet, global_process_set

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]


class DistributedGradientTape(tf.GradientTape):
    """Wraps a `tf.GradientTape` so that `gradient` averages over all ranks.

    Wrap it before or after recording; both tapes share one state. Use it inside a `tf.function` for speed. Every rank
    must ask for the gradients of the same sources. Only `gradient` reduces; `jacobian` and `batch_jacobian` do not.

    Example:
    >>> @tf.function
    ... def train_step(images, labels):
    ...     with tf.GradientTape() as tape:
    ...         loss = loss_fn(labels, model(images, training=True))
    ...     tape = hvd.DistributedGradientTape(tape)
    ...     grads = tape.gradient(loss, model.trainable_variables)
    ...     optimizer.apply_gradients(zip(grads, model.trainable_variables))

    Args:
        gradtape: the `tf.GradientTape` to wrap.
        device_dense: device for the ops on dense gradients. Defaults to TensorFlow's choice.
        device_sparse: the same for `tf.IndexedSlices`.
        compression: how gradients are sent: `hvd.Compression.none`, `.fp16`, `.bf16`, `.int8` or your own.
            Defaults to `none`.
        sparse_as_dense: bool, turns `tf.IndexedSlices` (of embeddings) into dense gradients first. Defaults to `False`.
        op: `hvd.Average`, `hvd.Sum` or `hvd.Adasum`. Defaults to `hvd.Average`.
        gradient_predivide_factor: float; with Average, gradients are divided by it before they are summed and
            multiplied by it afterwards, which keeps narrow dtypes in range. Defaults to 1.
        num_groups: deprecated, the same as an integer for `groups`.
        groups: Horovod's hint which gradients to reduce together: a positive integer or a list of lists of variables.
            Checked, but without effect: buckets are the same in every run anyway. Defaults to None.
        process_set: the ranks to reduce over; the others get their own gradients. Defaults to all.
        scale_local_gradients: bool, divides the gradients of local sources by the number of ranks, as a mean divides
            the others. Defaults to `True`.

    Raises:
        TypeError: `gradtape` is no tape.
        ValueError: it reduces already, or another argument is none of the above.
    """

    def __init__(
        self,
        gradtape: tf.GradientTape,
        device_dense: str = "",
        device_sparse: str = "",
        compression: AnyCompressor = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: int | Sequence[Sequence[Any]] | None = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        _check_tape(gradtape)
        options = ReduceOptions.of(locals())
        # Not super().__init__(): recording, watched variables and the tape itself are the wrapped tape's.
        object.__setattr__(self, "_wrapped", gradtape)
        self._options = options
        self._local_sources = local_sources.LocalSources(options)
        self._reducer = reducer.GradientReducer("tape", options, (Average, Sum, Adasum))

    def __getattr__(self, name: str) -> Any:
        """The state of the wrapped tape, and what a class of the user's has beyond tf.GradientTape."""
        if "_wrapped" not in vars(self):
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Sets the state of the wrapped tape; what replaces a method, or is new, is this tape's alone."""
        is_state = name in vars(self._wrapped) and not hasattr(type(self), name)
        setattr(self._wrapped, name, value) if is_state else super().__setattr__(name, value)

    def register_local_source(self, source: tf.Tensor | tf.Variable | tf.keras.Variable) -> None:
        """Keeps the gradient of a variable on this rank. Call it before `gradient`.

        Args:
            source: a variable, or a tensor that the tape watches.
        """
        self._local_sources.add(source)

    @graph.no_autograph
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients | bool = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """Like `tf.GradientTape.gradient`, then reduced over all ranks. A None stays a None.

        Args:
            target: see `tf.GradientTape.gradient`.
            sources: a variable, or any nest of variables.
            output_gradients: see `tf.GradientTape.gradient`.
            unconnected_gradients: the same. A bool is taken for Horovod's fourth argument, `use_generic_names`.
            use_generic_names: for Horovod's scripts, without effect: gradients are matched by their positions in the
                list, so the names of variables never matter.

        Returns:
            The reduced gradients, in the structure of `sources`, with the shapes and dtypes of the local ones.
        """
        if isinstance(unconnected_gradients, bool):
            unconnected_gradients = tf.UnconnectedGradients.NONE
        grads = self._wrapped.gradient(target, sources, output_gradients, unconnected_gradients)
        flat_grads, flat_sources = tf.nest.flatten(grads), tf.nest.flatten(sources)
        reduced = self._local_sources.reduce_others(self._reduced, flat_grads, flat_sources)
        return tf.nest.pack_sequence_as(grads, reduced)

    def _reduced(self, grads: list[Any], sources: Sequence[Any]) -> list[Any]:
        reduced = self._reducer(grads, sources)
        reduced_once.note(reduced, self._options.process_set, self._options.op)
        return reduced

    # TensorFlow's own versions would call `gradient` once for each element of the target.
    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the result of the wrapped tape for this rank; it is not reduced."""
        return self._wrapped.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the result of the wrapped tape for this rank; it is not reduced."""
        return self._wrapped.batch_jacobian(*args, **kwargs)


@graph.no_autograph
def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: tf.keras.layers.Layer | Sequence[tf.keras.layers.Layer] | None = None,
    scale_local_gradients: bool = True,
) -> DistributedGradientTape:
    """A `DistributedGradientTape` that keeps the gradients of some layers on each rank.

    For layers that differ between the ranks, such as parts of an embedding that is too large for one process.

    Example:
    >>> with tf.GradientTape() as tape:
    ...     loss = loss_fn(labels, model(images, training=True))
    >>> tape = hvd.PartialDistributedGradientTape(tape, local_layers=[model.layers[0]])
    >>> grads = tape.gradient(loss, model.trainable_variables)

    Args:
        gradtape: see `DistributedGradientTape`, like the arguments that follow.
        device_dense: device for the ops on dense gradients.
        device_sparse: the same for `tf.IndexedSlices`.
        compression: how gradients are sent.
        sparse_as_dense: bool, turns `tf.IndexedSlices` into dense gradients first.
        op: `hvd.Average` or `hvd.Sum`.
        gradient_predivide_factor: float, splits the division of an average.
        num_groups: deprecated, the same as an integer for `groups`.
        groups: checked, without effect.
        process_set: the ranks to reduce over.
        local_layers: a Keras layer or a list of them; all their trainable weights are local. Defaults to none.
        scale_local_gradients: bool, divides local gradients by the number of ranks. Defaults to `True`.

    Returns:
        The tape.

    Raises:
        ValueError: `local_layers` contains something that is no Keras layer.
    """
    given = dict(locals())
    layers = local_sources.layers_in(given.pop("local_layers"))
    tape = DistributedGradientTape(**given)
    tape._local_sources.add_layers(layers)
    return tape


def _check_tape(gradtape: object) -> None:
    if isinstance(gradtape, DistributedGradientTape):
        raise ValueError(
            "`gradtape` must be a plain tf.GradientTape. Received a DistributedGradientTape, whose gradients would be "
            "reduced twice. Wrap the tape once."
        )
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(
            f"`gradtape` must be a tf.GradientTape. Received: {gradtape!r} (of type {type(gradtape).__name__})."
        )

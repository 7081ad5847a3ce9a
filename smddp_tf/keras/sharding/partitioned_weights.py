"""Weights that the ranks store in parts: a layer gathers a weight when it reads it, and keeps none of it.

The layer's variable is this rank's *part*, flat, marked as one (`layouts.mark`): optimizers, files, checks and elastic
states treat it as they treat the tables of `DistributedEmbedding`. What the layer has in its attribute is a
`PartitionedWeight` in the full shape. In a step of a `tf.function`:

1. a weight is gathered from the parts of all ranks once the gather before the last one has begun its layer, so that two
   to three full weights exist at a time, and the next one travels while a layer computes;
2. its backward pass reads a weight that was gathered again (`_gather_again`), so the first one is freed after use;
3. the gradient is reduced to parts as soon as it is there.

Values are moved and never computed, and gradients are summed as others are, so training gives the weights of full ones.
After Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (SC20), stage 3.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from smddp_tf import basics
from smddp_tf._native.threads import of_thread
from smddp_tf.collectives import emit, graph, ops
from smddp_tf.collectives.layouts import layout_of, mark
from smddp_tf.collectives.rank_facts import warn_on_rank_zero
from smddp_tf.collectives.reduce_op import ReduceSpec, Sum
from smddp_tf.collectives.topology_ops import traced_ranks
from smddp_tf.keras import patch_table, patches
from smddp_tf.keras._backend import keras, needs_keras_3
from smddp_tf.keras.roles import current_distribution, running
from smddp_tf.keras.saving.sharded_variables import full_value, save_full_variables
from smddp_tf.keras.sharding.sharded_state import gathered_parts, own_elements
from smddp_tf.keras.sharding.shards import FlatPart, degree_of
from smddp_tf.rendezvous import rounds

MIN_ELEMENTS = 1 << 16  # of a weight that is partitioned, by default
_BACKWARD = "gradient_tape/"  # the name scope that TensorFlow gives the ops of a tape's gradients
# Collections of a graph, in the order of tracing: the computations before which gathers were asked for; of gathers
# for the backward pass what their readers wait for; reduced gradients.
_GATHERS, _AGAIN, _REDUCED = "smddp_weight_gathers", "smddp_weight_gathers_again", "smddp_weight_gradients"


@contextlib.contextmanager
def partition_weights(partition: str | int = "world", *, min_elements: int = MIN_ELEMENTS) -> Iterator[None]:
    """Weights of layers that are made inside are stored in parts on the ranks, and never in full on one of them.

    Layers gather a weight when they read it. Optimizers, wrapped or not, update the parts, so their state is in parts
    as well. All ranks must make the same layers in the same order, and read weights together: in `fit`, `evaluate`,
    `predict` and `save` every rank takes part. Weights are told apart by their paths, so layers without a name must get
    the same ones from Keras: where some ranks have made other layers before, call `keras.utils.clear_session()` on all
    of them first, or ranks wait for one another. Initial values are those that rank 0 draws; where ranks come and go
    each rank draws its own part, so all must have set the same random seed for those of one process. Files contain
    full weights, and load on any number of ranks, with this and without.

    Example:

    >>> with hvd.partition_weights():
    ...     model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(4096), keras.layers.Dense(10)])
    >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.AdamW(1e-3)), loss="mse")

    Args:
        partition: "world" (a part on each rank), "node" (on each rank of a node, which has all parts then) or an
            integer, the number of parts; see `partition_state` of `DistributedOptimizer`. On one rank nothing changes.
        min_elements: integer. Smaller weights, and those that are no floating point numbers, stay on every rank.

    Raises:
        ValueError: the ranks cannot be divided so, or `min_elements` is below 1.
        NotImplementedError: with Keras 2.
    """
    needs_keras_3("hvd.partition_weights")
    if min_elements < 1:
        raise ValueError(f"`min_elements` must be at least 1. Received: min_elements={min_elements}.")
    divided: list[str] = []

    def partition_of(layer: keras.Layer, name: str | None, shape: tuple[int, ...]) -> str | int | None:
        if math.prod(shape) < min_elements:
            return None
        divided.append(layer.name)
        return partition

    degree_of(partition)
    make_parts()
    with running.within(partition_of=partition_of):
        yield
    if not divided and basics.size() > 1:
        warn_on_rank_zero(
            f"hvd.partition_weights: no weight of {min_elements} elements or more was made inside, so none is divided. "
            "Layers make their weights when they are built: give the model a keras.Input, or call it on a batch inside."
        )


def make_parts() -> None:
    """Lets Keras make parts of weights, where `running.here.partition_of` says so, and save them."""
    save_full_variables()
    patches.wrap(patch_table.ADD_WEIGHT, _add_weight)


def build_for_session(model: keras.Model) -> None:
    """Replaces the variables inside of the parts by ones for the ranks of the present session, of zeros."""
    for part in model.variables:
        if isinstance(layout := layout_of(part), FlatPart):
            layout = FlatPart.of_weight(layout.full_shape, layout.asked)
            part._shape = _shape_of(layout)
            part._initialize(tf.zeros(part._shape, part.dtype))
            mark(part, layout)


class PartitionedWeight(getattr(keras, "Variable", object)):  # type: ignore[misc]
    """A Keras variable whose value is gathered from the ranks' parts when it is read, by all of them together.

    Attributes:
        part: the Keras variable that is trained: this rank's elements, flat.
    """

    def __init__(self, part: keras.Variable) -> None:
        # Not Keras's constructor, which would make a variable.
        self.__dict__.update(vars(part))
        self.part, self._shape = part, layout_of(part).full_shape
        self._ndim = len(self._shape)

    _value = property(lambda self: self.part._value)
    handle = property(lambda self: self.part._value.handle)

    @property
    def trainable(self) -> bool:
        """Whether the part is trained."""
        return bool(self.part.trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self.part.trainable = value

    @property
    def value(self) -> tf.Tensor:
        """The full weight, in the dtype of the layer's computation."""
        layout = layout_of(self.part)
        mark(self.part, layout)  # Keras gives one that was made in a `StatelessScope` its value later
        with tf.control_dependencies(_before_last_gather()):
            stored = tf.convert_to_tensor(self.part if self._value is None else self._value)
        return gathered(stored, layout, self.path, tf.as_dtype(self.dtype))

    def numpy(self) -> np.ndarray:
        """The full weight, on all ranks; while they save together, on rank 0."""
        return np.asarray(self.value if running.here.saved_variables is None else full_value(self.part))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def _direct_assign(self, value: tf.Tensor) -> None:
        self.part.assign(_own(value, layout_of(self.part)))

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        raise NotImplementedError(
            "tf.train.Checkpoint would keep this rank's part only of weights that are partitioned over the ranks. Save "
            f"by model.save, model.save_weights or hvd.elastic.TensorFlowKerasState. Received: {self!r}."
        )

    def __repr__(self) -> str:
        return f"<PartitionedWeight path={self.path}, shape={self.shape}, in {layout_of(self.part).parts} parts>"


class _OfFullWeight(keras.regularizers.Regularizer, keras.constraints.Constraint):
    """What Keras calls with a part, where the full weight is meant."""

    def __init__(self, function: Callable[[], tf.Tensor]) -> None:
        self._function = function

    def __call__(self, part: keras.Variable) -> tf.Tensor:
        return self._function()


def _add_weight(plain: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """Keras's `Layer.add_weight`, which makes a part where `partition_weights` or a `ModelParallel` says so."""
    kwargs.update(zip(("shape", "initializer", "dtype"), args))
    shape = tuple(kwargs.get("shape") or ())
    asks = running.here.partition_of or current_distribution.partition_of
    asked = None if 0 in shape else asks(self, kwargs.get("name"), shape)
    if asked is None or (degree_of(asked) == 1 and not rounds.in_rounds(os.environ)):
        return plain(self, **kwargs)
    if not can_be_divided(kwargs.get("dtype") or self.variable_dtype):
        return plain(self, **kwargs)
    layout = FlatPart.of_weight(shape, asked)
    initializer = keras.initializers.get(kwargs.get("initializer") or "glorot_uniform")
    regularizer = keras.regularizers.get(kwargs.pop("regularizer", None))
    constraint = keras.constraints.get(kwargs.pop("constraint", None))
    part = plain(self, **{**kwargs, "shape": _shape_of(layout), "initializer": _initial_part(initializer, layout)})
    mark(part, layout)
    weight = PartitionedWeight(part)
    if regularizer is not None:
        part.regularizer = _OfFullWeight(lambda: regularizer(weight))
    if constraint is not None:
        part.constraint = _OfFullWeight(lambda: _own(constraint(weight), layout_of(part)))
    for ids in self._tracker.stored_ids.values():  # an attribute that is the weight adds no second variable
        ids.add(id(weight))
    return weight


def can_be_divided(dtype: str) -> bool:
    """True for the dtypes, as Keras names them, of weights that are stored in parts."""
    found = tf.as_dtype(keras.backend.standardize_dtype(dtype))
    return bool(found.is_floating and found.size > 1)


def _shape_of(layout: FlatPart) -> tuple[int]:
    first, end = layout.span(basics.rank())
    return (end - first,)


def _initial_part(initializer: Callable[..., Any], layout: FlatPart) -> Callable[..., tf.Tensor]:
    """Returns an initializer of a part: its elements of what rank 0 draws. One full weight exists at a time.

    In a job whose ranks change each rank draws itself, as a new one makes its model while the others go on.
    """

    def draw(shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        if not tf.executing_eagerly():  # Keras asks for shapes only
            return tf.zeros(shape, dtype)
        drawn = tf.convert_to_tensor(initializer(layout.full_shape, dtype=dtype))
        if not rounds.in_rounds(os.environ):
            drawn = ops.broadcast(drawn, 0, name="initial values of partitioned weights")
        return _own(drawn, layout)

    return draw


def _own(full: tf.Tensor, layout: FlatPart) -> tf.Tensor:
    """This rank's elements. Eagerly a copy: a variable that is given a slice would keep all of the memory behind it."""
    own = own_elements(full, layout)
    return tf.raw_ops.DeepCopy(x=own) if tf.executing_eagerly() else own


@graph.no_autograph
def gathered(stored: tf.Tensor, layout: FlatPart, name: str, dtype: tf.DType) -> tf.Tensor:
    """Returns a full weight; its gradient is the sum of all ranks' gradients, this rank's part of it.

    Args:
        stored: this rank's part, flat.
        layout: of the part.
        name: the path of the weight, equal on all ranks.
        dtype: of the result. Parts are converted before they travel; gradients after.
    """
    compiled, active = graph.compiling(), running.here.active
    full: list[tf.Tensor] = []

    def gather() -> tf.Tensor:
        if layout.parts == 1:
            return tf.reshape(tf.cast(stored, dtype), layout.full_shape)
        return gathered_parts([tf.cast(stored, dtype)], [layout], name, basics.is_homogeneous())[0]

    @tf.custom_gradient
    def differentiable(part: tf.Tensor) -> Any:
        def backward(grad: Any) -> tf.Tensor:
            _gather_again(full[0], gather)
            grad = tf.cast(tf.convert_to_tensor(grad), part.dtype)
            grad = grad if active is None else active.masked([grad], [None])[0]
            return _reduced_to_part(grad, layout, name, compiled)

        with tf.control_dependencies(traced_ranks(f"the weight {name} is partitioned")):
            return gather(), backward

    full.append(differentiable(stored))
    return full[0]


def _before_last_gather() -> list[tf.Operation]:
    """Notes that a weight is gathered now; returns the op after which that may begin: where the last but one did."""
    if tf.executing_eagerly():
        return []
    traced = tf.compat.v1.get_default_graph()
    begun = traced.get_collection_ref(_GATHERS)
    operations = reversed(traced.get_operations())
    begun.append(next((op for op in operations if any(each.dtype != tf.resource for each in op.inputs)), None))
    return [op for op in begun[-3:-2] if op is not None]


def _gather_again(full: tf.Tensor, gather: Callable[[], tf.Tensor]) -> None:
    """Lets the backward pass of a layer read a weight that is gathered for it, so that `full` ends with the forward.

    Called with all gradient ops of the layer traced. The second gather begins with the backward pass of the layer that
    was traced before this one, and after all but one of the earlier gradients are in parts: full ones are few.
    """
    if tf.executing_eagerly() or full.graph is not tf.compat.v1.get_default_graph() or _BACKWARD in full.op.name:
        return
    readers = [op for op in full.consumers() if _BACKWARD in op.name]
    if not readers:
        return
    begun = full.graph.get_collection_ref(_AGAIN)
    begun.append([each for each in readers[0].inputs if each is not full])
    with tf.control_dependencies([*begun[-2:][0], *full.graph.get_collection_ref(_REDUCED)[-2:-1]]):
        again = gather()
    for op in readers:
        for index, each in enumerate(op.inputs):
            if each is full:
                op._update_input(index, again)


def _reduced_to_part(grad: tf.Tensor, layout: FlatPart, name: str, compiled: bool) -> tf.Tensor:
    """Returns this rank's part of the sum of all ranks' gradients, as soon as they are there."""
    key, spec = graph.unique_name(of_thread(f"{name} (gradient)"), "#"), ReduceSpec(Sum)
    in_plan = not (tf.executing_eagerly() or compiled or graph.is_for_session()) and basics.is_homogeneous()
    if not in_plan or layout.parts == 1 or not emit.is_plannable(grad):
        return _own(emit.allreduce_list([grad], spec, key, compiled)[0], layout)
    part = emit.reduce_by_plan({0: grad}, spec, key, layout.parts, compiled=False)[0]
    part.graph.get_collection_ref(_REDUCED).append(part)
    return part[: _shape_of(layout)[0]]

"""DistributedOptimizer: makes a Keras 3 optimizer apply gradients that are reduced over all ranks."""

from __future__ import annotations

from typing import Any

from smddp_tf.basics import is_initialized
from smddp_tf.collectives import graph
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.gradients.local_sources import layers_in
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.keras._backend import LEGACY, keras, needs_keras_3
from smddp_tf.keras.optimizer import legacy
from smddp_tf.keras.optimizer.copied import copy_of
from smddp_tf.keras.optimizer.loss_scaling import reduce_before_finite_check
from smddp_tf.keras.optimizer.reducing import attach, wrap_class
from smddp_tf.keras.roles.optimizers import innermost
from smddp_tf.keras.roles.wrapping import advice, reducer_on, reduces, refuse_wrapped
from smddp_tf.keras.sharding.shards import degree_of
from smddp_tf.lifecycle import first_use
from smddp_tf.process_sets import ProcessSet, global_process_set

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer", "wrap_class"]

first_use.at_use(reduce_before_finite_check, of=first_use.REDUCING)


@graph.no_autograph
def DistributedOptimizer(
    optimizer: keras.optimizers.Optimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    partition_state: str | int | None = None,
    shard: str | int | None = None,
) -> Any:
    """Averages gradients over all ranks before `optimizer` applies them.

    Wrap the optimizer you already use, on every rank. Each rank computes gradients on its own batch; they are replaced
    by their mean over all ranks before anything else happens to them (clipping, weight decay, the finite check of a
    `LossScaleOptimizer`), so every rank applies the same update. `Model.fit`, `apply_gradients` and `apply` all reduce;
    in a loop of your own use either this or `hvd.DistributedGradientTape`, not both.

    Where an update is made of several passes, each rank adds them up by itself and only the result is reduced: with
    `gradient_accumulation_steps` of the Keras optimizer, or with `backward_passes_per_step` here.

    Scale the learning rate yourself: the mean does not grow with the number of ranks.

    Example:

    >>> hvd.init()
    >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))
    >>> model.compile(optimizer, loss="mse")

    Returned is a new optimizer, of the same class name and with the same state; the given one stays as it is, and
    reduces nothing. Learning rate schedules, functions and other objects in its attributes are shared by both. A model
    saved with it loads in plain Keras, without this library, and then has a plain optimizer; `hvd.load_model` wraps it
    again. The same holds for a pickled model. An optimizer that is pickled or copied by itself, or made again in this
    process from its configuration, stays wrapped with the same settings (Keras pickles its configuration, not its slot
    variables).

    Args:
        optimizer: `keras.optimizers.Optimizer` to wrap. Its state is copied.
        name: String, used in error messages and traces about this optimizer's gradients. Defaults to `"optimizer"`.
        device_dense: String, the device for the ops on dense gradients. Defaults to TensorFlow's choice.
        device_sparse: String, the same for `tf.IndexedSlices`.
        compression: What travels: `hvd.Compression.none`, `.fp16`, `.bf16`, `.int8`, or a class with static methods
            `compress` and `decompress`. Defaults to `hvd.Compression.none`.
        sparse_as_dense: Boolean. Turns `tf.IndexedSlices` (the gradients of an `Embedding`) into dense tensors before
            they are reduced; otherwise their rows are gathered. Defaults to `False`.
        gradient_predivide_factor: Float. Gradients are divided by it before they are summed and the sum by
            `size / gradient_predivide_factor`. Only with `op=hvd.Average`. Defaults to `1.0`.
        op: `hvd.Average` or `hvd.Sum`. Defaults to `hvd.Average`.
        backward_passes_per_step: Integer. So many calls make one update: their gradients are added up on each rank, the
            sum is reduced and applied in the last of them. `optimizer.iterations` counts every call, so learning rate
            schedules and Adam's bias correction do too. Gradients must be dense: see `sparse_as_dense`. The sums are in
            no saved file. Defaults to `1`.
        average_aggregated_gradients: Boolean. Divides that sum by `backward_passes_per_step`. Defaults to `False`.
        num_groups: Integer, the deprecated form of an integer for `groups`.
        groups: Horovod's hint which gradients to reduce together: a positive integer or a list of lists of variables.
            Checked, but without effect: buckets are the same in every run anyway. Defaults to `None`.
        process_set: The ranks to reduce over; the others apply their own gradients. Defaults to all.
        scale_local_gradients: Boolean. Divides the gradients of local variables (`optimizer.register_local_var(v)`),
            which stay on their rank, by the number of ranks, as a mean divides the others. Defaults to `True`.
        partition_state: Which ranks share the optimizer's state, of which each then has an equal part: `"node"`, those
            of each node; `"world"`, all; an integer, so many consecutive ranks. Weights are those without it, bit by
            bit, and so are saved files. See docs/memory.md. Defaults to `None`: every rank has all of the state.
        shard: The older name of `partition_state`.

    Returns:
        The optimizer that reduces.

    Raises:
        ValueError: If `optimizer` is not a Keras 3 optimizer or is wrapped already, or the arguments contradict each
            other. Later, in `apply`, with `backward_passes_per_step` and `tf.IndexedSlices` without `sparse_as_dense`,
            or if `hvd.DistributedGradientTape` has reduced the gradients already.
    """
    return distribute(optimizer, ReduceOptions.of(locals()), copies=True)


def distribute(optimizer: keras.optimizers.Optimizer, settings: ReduceOptions, copies: bool) -> Any:
    """Makes an optimizer reduce.

    Args:
        settings: how, checked.
        copies: whether the one that reduces is a copy. An optimizer that reduces already, and may be wrapped once more,
            is changed in place.
    """
    if settings.partition_state is not None:
        settings = _checked_partition(settings)
    if LEGACY:
        return legacy.distribute(optimizer, settings, copies)
    _check_optimizer(optimizer)
    _check_accumulates_once(optimizer, settings.backward_passes_per_step)
    wrapped = copy_of(optimizer) if copies and not reduces(optimizer) else optimizer
    attach(wrapped, settings)
    return wrapped


@graph.no_autograph
def PartialDistributedOptimizer(
    optimizer: keras.optimizers.Optimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A `DistributedOptimizer` that keeps the gradients of some layers on each rank.

    For layers that differ between the ranks, such as parts of an embedding that is too large for one process. With
    `BroadcastGlobalVariablesCallback` pass their variables as `local_variables`. `global_clipnorm` would take the norm
    of different gradients on each rank, and let the shared weights part: use `clipnorm` or `clipvalue`.

    Example:

    >>> optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.Adam(), local_layers=[model.layers[0]])

    Args:
        local_layers: Keras layer or list of them; all their trainable weights are local. Defaults to none.

    The others are those of `DistributedOptimizer`.

    Raises:
        ValueError: As there, and if `local_layers` holds something else than layers.
    """
    given = dict(locals())
    layers = layers_in(given.pop("local_layers"))
    wrapped = DistributedOptimizer(**given)
    reducer_on(innermost(wrapped)).local.add_layers(layers)
    return wrapped


def _checked_partition(settings: ReduceOptions) -> ReduceOptions:
    needs_keras_3("DistributedOptimizer(partition_state=...)")
    if settings.process_set is not global_process_set:
        raise ValueError(
            "`partition_state` divides the state among all ranks, which must reduce together. Received: "
            f"partition_state={settings.partition_state!r} with process_set={settings.process_set}. Leave one of them "
            "out."
        )
    if is_initialized():
        degree_of(settings.partition_state)
    return settings._replace(sparse_as_dense=True)


def _check_accumulates_once(optimizer: keras.optimizers.Optimizer, passes: int) -> None:
    steps = innermost(optimizer).gradient_accumulation_steps
    if passes > 1 and steps:
        raise ValueError(
            "Gradients can be accumulated by Keras or by hvd.DistributedOptimizer, not by both. Received: an optimizer "
            f"with gradient_accumulation_steps={steps} and backward_passes_per_step={passes}. Leave one of them out."
        )


def _check_optimizer(optimizer: object) -> None:
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return refuse_wrapped(optimizer)
    keras_2 = "This is a Keras 2 optimizer: set TF_USE_LEGACY_KERAS=1 before Python starts, or use `keras.optimizers`."
    what_to_do = advice(optimizer, "keras.optimizers", keras.optimizers.Optimizer, tf_keras=keras_2)
    raise ValueError(
        "`optimizer` must be a Keras 3 optimizer, an instance of `keras.optimizers.Optimizer`. "
        f"Received: optimizer={optimizer!r} (of type {type(optimizer).__name__}). {what_to_do}"
    )

"""DistributedOptimizer: makes a Keras 3 optimizer apply gradients that are reduced over all ranks."""

from __future__ import annotations

import operator

from smddp_tf.compression import Compression
from smddp_tf.keras import legacy
from smddp_tf.keras._backend import LEGACY, keras
from smddp_tf.keras.accumulation import innermost
from smddp_tf.keras.loss_scaling import reduce_before_finite_check
from smddp_tf.keras.reducing import ReductionSettings, attach, wrap_class
from smddp_tf.keras.wrapping import advice, refuse_wrapped
from smddp_tf.reduce_op import Average

__all__ = ["DistributedOptimizer", "DistributedOptimizerTF", "wrap_class"]


def DistributedOptimizer(
    optimizer,
    name=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    gradient_predivide_factor=1.0,
    op=Average,
    backward_passes_per_step=1,
    average_aggregated_gradients=False,
    **later,
):
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

    The optimizer is changed in place and returned: same object, same state, same class name. A model saved with it
    loads in plain Keras, without this library, and then has a plain optimizer; `hvd.load_model` wraps it again. The
    same holds for a pickled model. An optimizer pickled or copied by itself stays wrapped with the same settings (Keras
    pickles its configuration, not its slot variables).

    Args:
        optimizer: `keras.optimizers.Optimizer` to wrap. Its state is kept.
        name: String, used in error messages and traces about this optimizer's gradients. Defaults to `"optimizer"`.
        device_dense: String, the device for the ops on dense gradients. Defaults to TensorFlow's choice.
        device_sparse: String, the same for `tf.IndexedSlices`.
        compression: What travels: `hvd.Compression.none`, `.fp16`, `.bf16`, or a class with static methods `compress`
            and `decompress`. Defaults to `hvd.Compression.none`.
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
        later: Horovod's further arguments (`groups`, `scale_local_gradients`, ...), taken only with the value that
            changes nothing, because scripts pass that too.

    Returns:
        `optimizer`, which from now on reduces.

    Raises:
        ValueError: If `optimizer` is not a Keras 3 optimizer or is wrapped already, or the arguments contradict each
            other. Later, in `apply`, if `backward_passes_per_step` meets `tf.IndexedSlices` without `sparse_as_dense`.
        NotImplementedError: If one of Horovod's further arguments asks for something.
        TypeError: If an argument is none of Horovod's.
    """
    _check_later(later)
    passes = _checked_passes(backward_passes_per_step)
    settings = ReductionSettings(
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        passes,
        bool(average_aggregated_gradients),
    )
    if LEGACY:
        return legacy.distribute(optimizer, settings)
    _check_optimizer(optimizer)
    _check_accumulates_once(optimizer, passes)
    attach(optimizer, settings)
    reduce_before_finite_check()
    return optimizer


def DistributedOptimizerTF(
    optimizer,
    name=None,
    use_locking=False,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    backward_passes_per_step=1,
    op=Average,
    gradient_predivide_factor=1.0,
    average_aggregated_gradients=False,
    **later,
):
    """`DistributedOptimizer` with the argument order of `horovod.tensorflow`.

    See `smddp_tf.keras.DistributedOptimizer`, which does the work.

    Args:
        use_locking: Taken for compatibility with Horovod, where it concerns TensorFlow 1 optimizers; has no effect.
    """
    del use_locking
    return DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        **later,
    )


# Horovod's arguments that are not there yet, with the values that ask for nothing.
_LATER = {
    "num_groups": (0,),
    "groups": (None,),
    "scale_local_gradients": (True,),
}


def _check_later(arguments):
    for name, value in arguments.items():
        if name not in _LATER:
            raise TypeError(f"DistributedOptimizer() got an unexpected keyword argument {name!r}")
        if value not in _LATER[name]:
            raise NotImplementedError(
                f"`{name}` is not there yet: only {name}={_LATER[name][0]!r} is accepted. Received: {name}={value!r}."
            )


def _checked_passes(passes):
    if isinstance(passes, bool) or not hasattr(passes, "__index__") or passes < 1:
        raise ValueError(
            "`backward_passes_per_step` must be an integer of at least 1. "
            f"Received: backward_passes_per_step={passes!r}."
        )
    return operator.index(passes)


def _check_accumulates_once(optimizer, passes):
    steps = innermost(optimizer).gradient_accumulation_steps
    if passes > 1 and steps:
        raise ValueError(
            "Gradients can be accumulated by Keras or by hvd.DistributedOptimizer, not by both. Received: an optimizer "
            f"with gradient_accumulation_steps={steps} and backward_passes_per_step={passes}. Leave one of them out."
        )


def _check_optimizer(optimizer):
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        what_to_do = advice(
            optimizer,
            "keras.optimizers",
            keras.optimizers.Optimizer,
            tf_keras="This is a Keras 2 optimizer: set TF_USE_LEGACY_KERAS=1 before Python starts, or use "
            "`keras.optimizers`.",
        )
        raise ValueError(
            "`optimizer` must be a Keras 3 optimizer, an instance of `keras.optimizers.Optimizer`. "
            f"Received: optimizer={optimizer!r} (of type {type(optimizer).__name__}). {what_to_do}"
        )
    refuse_wrapped(optimizer)

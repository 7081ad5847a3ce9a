"""Helpers that are not in Horovod's API, but that scripts import from `horovod.tensorflow` all the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow.python.util import object_identity

from smddp_tf import basics
from smddp_tf.collectives import graph, ops
from smddp_tf.collectives.reduce_op import Average, Sum
from smddp_tf.collectives.reduce_op import resolve_average as handle_average_backwards_compatibility
from smddp_tf.compat.horovod.common_util import num_rank_is_power_2 as check_num_rank_power_of_2
from smddp_tf.compat.horovod.common_util import split_list
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.gradients.reducer import GradientReducer
from smddp_tf.process_sets import ProcessSet, global_process_set

__all__ = [
    "LocalGradientAggregationHelper", "LocalGradientAggregationHelperEager", "check_num_rank_power_of_2",
    "gpu_available", "handle_average_backwards_compatibility", "refs_to_vars", "split_list", "vars_to_refs",
]  # fmt: skip


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Returns whether CUDA is compiled in and TensorFlow sees a GPU.

    Args:
        ext_base_name: accepted for compatibility with Horovod; has no effect.
        verbose: accepted for compatibility with Horovod; has no effect.

    Returns:
        bool.
    """
    return basics.cuda_built() and bool(tf.config.list_physical_devices("GPU"))


def vars_to_refs(vars: Any) -> Any:
    """Returns hashable references to variables, as keys of a dictionary.

    Args:
        vars: a variable of TensorFlow or Keras, or a (nested) list of them.

    Returns:
        A reference, or a tuple of references for a list.
    """
    if isinstance(vars, list):
        return tuple(vars_to_refs(variable) for variable in vars)
    return object_identity.Reference(vars)  # as `tf.Variable.ref()` does; variables of Keras 3 have none


def refs_to_vars(refs: Any) -> Any:
    """Returns the variables of references.

    Args:
        refs: the result of `vars_to_refs`.

    Returns:
        The variable, or a list of variables for a tuple.
    """
    return [refs_to_vars(ref) for ref in refs] if isinstance(refs, tuple) else refs.deref()


class LocalGradientAggregationHelper:
    """Horovod's accumulator for `backward_passes_per_step`; not here.

    `hvd.DistributedOptimizer(optimizer, backward_passes_per_step=N)` does what it is for.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "LocalGradientAggregationHelper is an inner part of Horovod that does not exist here. "
            "Use hvd.DistributedOptimizer(optimizer, backward_passes_per_step=N), which adds up the gradients itself."
        )


LocalGradientAggregationHelperEager = LocalGradientAggregationHelper


def _executing_eagerly() -> bool:
    return bool(tf.executing_eagerly())


def _make_subgraph(f: Callable[..., Any]) -> Any:
    return tf.function(f)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Remembers results, by the arguments and by whether TensorFlow executes eagerly."""
    cached = functools.cache(lambda eagerly, *args, **kwargs: f(*args, **kwargs))
    return functools.wraps(f)(lambda *args, **kwargs: cached(tf.executing_eagerly(), *args, **kwargs))


@graph.no_autograph
def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """`hvd.allreduce` with the arguments of Horovod's inner function.

    Args:
        tensor: tensor, `tf.IndexedSlices` or a value for `tf.convert_to_tensor`; for the others see `hvd.allreduce`.
        op: the reduction. Defaults to `hvd.Sum`.

    Returns:
        As of `hvd.allreduce`.
    """
    return ops.allreduce(**locals())


@graph.no_autograph
def _make_allreduce_grads_fn(
    name: str,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., list[Any]]:
    """Returns a function of (gradients, variables) that reduces gradients as `DistributedGradientTape` does."""
    reducer = GradientReducer(name, ReduceOptions.of(locals()))

    def allreduce_grads(grads: Sequence[Any], vars: Any = None, use_generic_names: bool = False) -> list[Any]:
        if vars is None:
            vars = [SimpleNamespace(shape=tf.TensorShape(None) if grad is None else grad.shape) for grad in grads]
        return reducer(grads, vars)

    return allreduce_grads

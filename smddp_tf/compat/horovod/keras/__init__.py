"""The names and signatures of `horovod.keras`, where they are not those of `horovod.tensorflow.keras`.

`import smddp_tf.keras as hvd` serves scripts of either kind, except those that rely on the older argument orders here:
`allreduce(value, name, average=True)`, `DistributedOptimizer(..., op, num_groups, groups)` and
`callbacks.BestModelCheckpoint(monitor, verbose, mode, save_freq)`.
"""

from __future__ import annotations

from typing import Any

from smddp_tf import basics
from smddp_tf import keras as _others
from smddp_tf.collectives import graph
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.compat.horovod.keras import callbacks
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.keras import values
from smddp_tf.keras.optimizer.distributed import DistributedOptimizer as _DistributedOptimizer

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "PartialDistributedOptimizer", "Sum", "allgather",
    "allreduce", "broadcast", "broadcast_global_variables", "callbacks", "elastic", "load_model", "reducescatter",
]  # fmt: skip
__all__ += [name for name in basics.__all__ if name != "is_homogeneous"]


def __getattr__(name: str) -> Any:
    """What is the same in `horovod.tensorflow.keras`."""
    return getattr(_others, name)


@graph.no_autograph
def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
    **more: Any,
) -> Any:
    """`smddp_tf.keras.DistributedOptimizer` with the argument order of `horovod.keras`.

    Args:
        optimizer: Keras optimizer to wrap; for the others see `smddp_tf.keras.DistributedOptimizer`.
        more: its further arguments, by name, which Horovod does not have here.

    Returns:
        The wrapped optimizer.
    """
    given = dict(locals())
    return _DistributedOptimizer(**given.pop("more"), **given)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: AnyCompressor = Compression.none,
) -> Any:
    """`smddp_tf.keras.allreduce`, but `average` is True unless given: with `op`, pass `average=None`.

    Args:
        value: a value for `tf.convert_to_tensor`, of any shape; for the others see `smddp_tf.keras.allreduce`.
        average: bool, deprecated: the mean or the sum. Defaults to `True`.
        op: a reduction such as `hvd.Sum`. Defaults to None, as `average` says.

    Returns:
        As of `smddp_tf.keras.allreduce`.

    Raises:
        ValueError: both `op` and `average` are given.
    """
    if average and op is None:
        average, op = None, Average  # no warning for what the caller has not written
    return values.allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)

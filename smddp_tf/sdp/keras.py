"""`smdistributed.dataparallel.tensorflow.keras`, for `Model.fit`."""

from __future__ import annotations

from typing import Any

from smddp_tf.basics import local_rank, local_size, rank, size
from smddp_tf.collectives.reduce_op import Average
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.keras import callbacks, load_model
from smddp_tf.lifecycle import first_use as _first_use
from smddp_tf.sdp import reductions, training, world
from smddp_tf.sdp.reductions import *  # noqa: F403
from smddp_tf.sdp.world import *  # noqa: F403

_first_use.begin()

__all__ = ["Compression", "DistributedOptimizer", "callbacks", "load_model", "local_rank", "local_size", "rank", "size"]
__all__ += reductions.__all__
__all__ += world.__all__


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    sparse_as_dense: bool = True,
    op: int = Average,
    bucket_cap_mb: float | None = None,
) -> Any:
    """`sdp.DistributedOptimizer` without `use_locking`, for `model.compile`.

    Example:

    >>> model.compile(sdp.DistributedOptimizer(optimizer), loss="mse", experimental_run_tf_function=False)

    Args:
        optimizer: Keras optimizer to wrap; see `sdp.DistributedOptimizer` for the others.

    Returns:
        The wrapped optimizer.
    """
    return training.DistributedOptimizer(**locals())

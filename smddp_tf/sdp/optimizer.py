"""The optimizer of `smdistributed.dataparallel.tensorflow`."""

from __future__ import annotations

from typing import Any

from smddp_tf.collectives.reduce_op import Average, as_reduce_op
from smddp_tf.compat.tf1 import optimizer as of_hvd
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.sdp.reductions import warn_of_devices
from smddp_tf.sdp.training import set_bucket_cap


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompressor = Compression.none,
    sparse_as_dense: bool = True,
    op: int = Average,
    bucket_cap_mb: float | None = None,
) -> Any:
    """Averages gradients over all ranks before `optimizer` applies them; see `hvd.DistributedOptimizer`.

    Args:
        optimizer: a Keras optimizer; or a TensorFlow 1 optimizer, where `hvd.DistributedOptimizer` takes one.
        name: String, used in messages.
        use_locking: concerns TensorFlow 1; has no effect.
        device_dense: ignored, with a warning.
        device_sparse: ignored, with a warning.
        compression: `sdp.Compression.none`, `.fp16`, or a compressor class.
        sparse_as_dense: bool, turns `tf.IndexedSlices` into dense gradients first. Defaults to `True`, as in SMDDP
            since 1.2.1.
        op: `ReduceOp.AVERAGE`.
        bucket_cap_mb: number, the bucket size in MiB; see `smddpcommon.setBucketSize`. Defaults to what
            the engine finds best.

    Returns:
        The wrapped optimizer.

    Raises:
        ValueError: an argument has a value that SMDDP refuses.
    """
    warn_of_devices(device_dense=device_dense, device_sparse=device_sparse)
    set_bucket_cap(bucket_cap_mb)
    op = as_reduce_op(op, (Average,))
    return of_hvd.DistributedOptimizer(
        optimizer, name, use_locking, compression=compression, sparse_as_dense=sparse_as_dense, op=op
    )

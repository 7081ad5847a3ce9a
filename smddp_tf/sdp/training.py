"""The tape and the optimizer of `smdistributed.dataparallel.tensorflow`."""

from __future__ import annotations

from typing import Any

from smddp_tf._warn import warn
from smddp_tf.collectives.reduce_op import Average, ReduceOp, as_reduce_op
from smddp_tf.compat.tf1 import optimizer as of_hvd
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.gradients.tape import DistributedGradientTape as _Tape
from smddp_tf.sdp.common import checked_bucket_bytes, setBucketSize


class DistributedGradientTape(_Tape):
    """Wraps a `tf.GradientTape` so that `gradient` averages over all ranks; see `hvd.DistributedGradientTape`.

    Example:

    >>> with tf.GradientTape() as tape:
    ...     loss = loss_fn(labels, model(images, training=True))
    >>> tape = sdp.DistributedGradientTape(tape)
    >>> grads = tape.gradient(loss, model.trainable_variables)

    Args:
        gradtape: the `tf.GradientTape` to wrap.
        device_dense: ignored, with a warning.
        device_sparse: ignored, with a warning.
        compression: `sdp.Compression.none`, `.fp16`, or a compressor class.
        sparse_as_dense: bool, turns `tf.IndexedSlices` into dense gradients first. Defaults to `True`, as in SMDDP
            since 1.2.1.
        op: `ReduceOp.AVERAGE`.
        bucket_cap_mb: number, the bucket size in MiB; see `smddpcommon.setBucketSize`. Defaults to what
            the engine finds best.
    """

    __slots__ = ()

    def __init__(
        self,
        gradtape: Any,
        device_dense: str = "",
        device_sparse: str = "",
        compression: AnyCompressor = Compression.none,
        sparse_as_dense: bool = True,
        op: int = Average,
        bucket_cap_mb: float | None = None,
    ) -> None:
        op = _checked(op, bucket_cap_mb, device_dense=device_dense, device_sparse=device_sparse)
        super().__init__(gradtape, compression=compression, sparse_as_dense=sparse_as_dense, op=op)


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
    op = _checked(op, bucket_cap_mb, device_dense=device_dense, device_sparse=device_sparse)
    return of_hvd.DistributedOptimizer(
        optimizer, name, use_locking, compression=compression, sparse_as_dense=sparse_as_dense, op=op
    )


def _checked(op: int, bucket_cap_mb: float | None, **devices: str) -> ReduceOp:
    """Returns `op` as a `ReduceOp`; takes over a bucket size, and warns of devices, which SMDDP's documents refuse."""
    if given := ", ".join(f"{name}={device!r}" for name, device in devices.items() if device):
        warn(
            f"SMDDP does not support devices for its operations, and they are ignored here. Received: {given}. "
            "Leave them out.",
        )
    if bucket_cap_mb is not None:
        setBucketSize(checked_bucket_bytes(bucket_cap_mb * 1024 * 1024, "`bucket_cap_mb` * 1024 * 1024", bucket_cap_mb))
    return as_reduce_op(op, (Average,))

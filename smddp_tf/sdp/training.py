"""The tape of `smdistributed.dataparallel.tensorflow`."""

from __future__ import annotations

from typing import Any

from smddp_tf.collectives.reduce_op import Average, as_reduce_op
from smddp_tf.compression import AnyCompressor, Compression
from smddp_tf.gradients.tape import DistributedGradientTape as _Tape
from smddp_tf.sdp.common import checked_bucket_bytes, setBucketSize
from smddp_tf.sdp.reductions import warn_of_devices


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
        warn_of_devices(device_dense=device_dense, device_sparse=device_sparse)
        set_bucket_cap(bucket_cap_mb)
        super().__init__(
            gradtape, compression=compression, sparse_as_dense=sparse_as_dense, op=as_reduce_op(op, (Average,))
        )


def set_bucket_cap(megabytes: float | None) -> None:
    """Takes an argument `bucket_cap_mb`, unless it is None."""
    if megabytes is not None:
        setBucketSize(checked_bucket_bytes(megabytes * 1024 * 1024, "`bucket_cap_mb` * 1024 * 1024", megabytes))

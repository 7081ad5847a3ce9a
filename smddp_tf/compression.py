"""Compressors: a tensor is sent to the other ranks unchanged, in a narrower dtype, or in 8-bit blocks.

The engine itself narrows for the built-in compressors, while it copies, and sums in float32; their `compress` and
`decompress` are for direct calls. A compressor of the user's is called around the reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, Union

from smddp_tf._native import needs_tensorflow  # noqa: F401

# isort: split
import tensorflow as tf

__all__ = [
    "AutoCompressor",
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "Int8Compressor",
    "NoneCompressor",
]


class Compressor:
    """The two functions that a compressor must have. Inheriting from this class is not necessary."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns the tensor to send and whatever `decompress` will need."""
        raise NotImplementedError("A compressor must define compress(tensor) -> (tensor, context).")

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the tensor in its old form. `ctx` is what `compress` returned."""
        raise NotImplementedError("A compressor must define decompress(tensor, context) -> tensor.")


class _Compresses(Protocol):
    """A compressor: a class with these two functions, or an object with these methods."""

    def compress(self, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]: ...

    def decompress(self, tensor: tf.Tensor, ctx: Any) -> tf.Tensor: ...


# What `split` takes; a string is the name of one of `Compression`.
AnyCompressor = Union[_Compresses, str]


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor


class _Narrowing(Compressor):
    """Casts wider floating tensors to `_dtype` and back."""

    _dtype: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return narrow(tensor, cls._dtype)

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_Narrowing):
    """Sends wider floating tensors as float16; sums are taken in float32.

    Values above 65504, also of the sum (before an average is divided), become infinite.
    """

    _dtype = tf.float16


class BF16Compressor(_Narrowing):
    """Sends wider floating tensors as bfloat16: the range of float32 with 8 significant bits."""

    _dtype = tf.bfloat16


class Int8Compressor(NoneCompressor):
    """Sends sums of float32 between nodes as 8-bit numbers: about a quarter of the bytes. See docs/compression.md.

    Blocks of 256 elements have a scale of their own (bfloat16). A sum is rounded twice: when a node sends it, and when
    the sum of all nodes is sent. Gradients that a tape or an optimizer reduces in a graph keep what was rounded away
    and add it to the next step's (error feedback; Seide et al. 2014, Tang et al., "DoubleSqueeze", 2019), which takes
    the gradients' bytes over the ranks of a node on every rank. Tensors under 64 KiB, ranks of one node, Min, Max,
    Product and Adasum, integers and half types, and rows of `tf.IndexedSlices` that are gathered are sent as they are.
    float64 is summed in float32. Infinities and NaN stay what they are. Called directly, both functions do nothing.
    """


class AutoCompressor(NoneCompressor):
    """Sends as the link between nodes needs it: int8 below 3 Gbit/s, bf16 below 25 Gbit/s, above as they are.

    The rate is that of a node, as `hvd.init` measured it; the slowest of all nodes counts, so all ranks choose the
    same. Ranks of one node send as they are. A new session, such as after a change of an elastic job, chooses
    again. Rows of `tf.IndexedSlices` that are gathered are sent as they are. Called directly, both functions do
    nothing.
    """


class Compression:
    """The compressors to choose from, also by name: "none", "fp16", "bf16", "int8", "auto".

    A class of your own with the same two functions works too.
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    int8 = Int8Compressor
    auto = AutoCompressor


_WIRE_DTYPES = {"none": "", "fp16": "float16", "bf16": "bfloat16", "int8": "int8", "auto": "auto"}
_BUILT_IN = {name: (getattr(Compression, name), wire_dtype) for name, wire_dtype in _WIRE_DTYPES.items()}


def split(compression: AnyCompressor) -> tuple[Any, str]:
    """Divides the work of a compressor between TensorFlow and the engine.

    Args:
        compression: a compressor, or the name of one of `Compression`.

    Returns:
        The compressor to call in TensorFlow, and the wire dtype for the engine as a string ("" for none).

    Raises:
        ValueError: it is neither.
    """
    for name, (built_in, wire_dtype) in _BUILT_IN.items():
        if compression is built_in or (isinstance(compression, str) and compression == name):
            return NoneCompressor, wire_dtype
    if callable(getattr(compression, "compress", None)) and callable(getattr(compression, "decompress", None)):
        return compression, ""
    raise ValueError(
        "`compression` must be hvd.Compression.none, .fp16, .bf16, .int8, .auto, one of these names (such as "
        f'"bf16"), or a class with `compress` and `decompress`. Received: compression={compression!r} (of type '
        f"{type(compression).__name__})."
    )


def reduce_compressed(
    reduce: Callable[[list[tf.Tensor]], Iterable[tf.Tensor]], tensors: Iterable[tf.Tensor], compression: AnyCompressor
) -> list[Any]:
    """Calls a compressor around a reduction.

    Args:
        reduce: returns the results for a list of tensors, in its order.
        tensors: what is reduced.
        compression: see `split`.

    Returns:
        The results of `reduce` for the compressed tensors, decompressed.
    """
    codec, _ = split(compression)
    pairs = [codec.compress(tensor) for tensor in tensors]
    results = reduce([compressed for compressed, _ in pairs])
    return [codec.decompress(result, ctx) for result, (_, ctx) in zip(results, pairs)]


def narrow(tensor: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.DType | None]:
    """Casts a floating tensor to a narrower dtype.

    Args:
        tensor: tensor of any shape and dtype.
        dtype: a floating dtype.

    Returns:
        The tensor in `dtype`, and its former dtype; or the tensor as it was, and None, where it is not a floating
        tensor or not wider than `dtype`.
    """
    if not tensor.dtype.is_floating or tensor.dtype.size <= dtype.size:
        return tensor, None
    return tf.cast(tensor, dtype), tensor.dtype

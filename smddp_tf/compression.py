"""What happens to a tensor on its way to the other ranks: nothing, or a narrower dtype."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor", "wire_dtype_of"]


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


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating tensors as float16. Values above 65504, also of the sum, become infinite."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return _narrow(tensor, tf.float16)

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return _widen(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends floating tensors as bfloat16: the range of float32 with 8 significant bits."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return _narrow(tensor, tf.bfloat16)

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        return _widen(tensor, ctx)


class Compression:
    """The compressors to choose from; a class of your own with the same two functions works too."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def wire_dtype_of(compression: Any) -> str | None:
    """The dtype the engine itself can cast to on the way, "" for as it is, None for a compressor of the user's."""
    return {NoneCompressor: "", FP16Compressor: "float16", BF16Compressor: "bfloat16"}.get(compression)


def _narrow(tensor: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.DType | None]:
    if not tensor.dtype.is_floating or tensor.dtype.size <= dtype.size:
        return tensor, None
    return tf.cast(tensor, dtype), tensor.dtype


def _widen(tensor: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
    return tensor if dtype is None else tf.cast(tensor, dtype)

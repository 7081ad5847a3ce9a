"""Datasets that never end: real batches with flag 1, then batches of zeros with flag 0."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def padding_batches(pairs: Any) -> Any:
    """Returns the endless dataset of pairs (0.0, batch of zeros) with the element types of `pairs`.

    Dimensions that the types leave open, such as a batch size, are 1.
    """
    _, spec = pairs.element_spec
    return tf.data.Dataset.from_tensors(0.0).repeat().map(lambda flag: (flag, zeros_of(spec)))


def padding_iterator(padding: Any) -> Any:
    """Returns an iterator with no thread that tunes it: the end of such a thread can take TensorFlow seconds."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return iter(padding.with_options(options))


def with_flags(dataset: Any) -> Any:
    """Returns the pairs (1.0, batch) of `dataset`."""
    return tf.data.Dataset.zip((tf.data.Dataset.from_tensors(1.0).repeat(), dataset))


def zeros_of(spec: Any) -> Any:
    """A batch of zeros (or empty strings) of the given types: any structure that tf.data knows."""
    return tf.nest.map_structure(_zeros_of_leaf, spec)


def _zeros_of_leaf(spec: Any) -> Any:
    if isinstance(spec, tf.RaggedTensorSpec):
        dense = tf.zeros(_closed(spec.shape), spec.dtype)
        return tf.RaggedTensor.from_tensor(dense, ragged_rank=spec.ragged_rank, row_splits_dtype=spec.row_splits_dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.sparse.from_dense(tf.zeros(_closed(spec.shape), spec.dtype))
    if isinstance(spec, tf.OptionalSpec):
        return tf.experimental.Optional.empty(spec._element_spec)
    if isinstance(spec, tf.TensorSpec):
        return tf.zeros(_closed(spec.shape), spec.dtype)
    return None  # NoneTensorSpec: an absent component


def _closed(shape: Any) -> Any:
    return [1 if size is None else size for size in shape] if shape.rank is not None else [1]
